"use strict";
(() => {
  const graph = JSON.parse(document.getElementById("graph").textContent);
  const canvas = document.getElementById("canvas");
  const tooltip = document.getElementById("tooltip");
  const side = document.getElementById("side");
  const search = document.getElementById("search");
  const pen = canvas.getContext("2d");
  const layerNames = { semantic: "facts", episodic: "episodes", procedural: "skills" };
  const edgeNames = { ground: "grounds", distill: "distilled into", step: "step link" };
  const hidden = new Set();
  const nodes = graph.nodes;
  const count = nodes.length;
  const placeOf = new Map(nodes.map((node, place) => [node.id, place]));
  const edges = graph.edges.map((edge) => ({ ...edge, from: placeOf.get(edge.source), to: placeOf.get(edge.target) }));
  const around = nodes.map(() => []);
  edges.forEach((edge) => {
    around[edge.from].push(edge);
    if (edge.to !== edge.from) around[edge.to].push(edge);
  });
  const radius = around.map((list) => 5 + Math.min(9, 1.6 * Math.sqrt(list.length)));

  // The layout: nodes push each other away, edges pull, and a weak spring holds everything together.
  const x = new Float64Array(count), y = new Float64Array(count);
  const vx = new Float64Array(count), vy = new Float64Array(count);
  const turn = Math.PI * (3 - Math.sqrt(5));
  const firstAngle = { semantic: 2.6, episodic: 0, procedural: 5 };
  for (let i = 0; i < count; i++) {
    const distance = 14 * Math.sqrt(i + 1);
    x[i] = Math.cos(i * turn) * distance + 60 * Math.cos(firstAngle[nodes[i].layer]);
    y[i] = Math.sin(i * turn) * distance + 60 * Math.sin(firstAngle[nodes[i].layer]);
  }
  const reach = 260, push = 900, rest = 70;
  let heat = 1;
  function settle() {
    const cells = new Map();
    for (let i = 0; i < count; i++) {
      const key = Math.floor(x[i] / reach) + "," + Math.floor(y[i] / reach);
      if (!cells.has(key)) cells.set(key, []);
      cells.get(key).push(i);
    }
    for (let i = 0; i < count; i++) {
      const column = Math.floor(x[i] / reach), row = Math.floor(y[i] / reach);
      for (let c = column - 1; c <= column + 1; c++) {
        for (let r = row - 1; r <= row + 1; r++) {
          for (const j of cells.get(c + "," + r) || []) {
            if (j <= i) continue;
            const dx = x[i] - x[j] || 0.1, dy = y[i] - y[j] || 0.1;
            const square = Math.max(40, dx * dx + dy * dy);
            if (square > reach * reach) continue;
            const force = push / square;
            const fx = dx * force * 0.1, fy = dy * force * 0.1;
            vx[i] += fx; vy[i] += fy; vx[j] -= fx; vy[j] -= fy;
          }
        }
      }
    }
    for (const edge of edges) {
      const dx = x[edge.to] - x[edge.from], dy = y[edge.to] - y[edge.from];
      const length = Math.hypot(dx, dy) || 1;
      const pull = 0.05 * (length - rest) / length / Math.sqrt(Math.min(around[edge.from].length, around[edge.to].length));
      vx[edge.from] += dx * pull; vy[edge.from] += dy * pull;
      vx[edge.to] -= dx * pull; vy[edge.to] -= dy * pull;
    }
    for (let i = 0; i < count; i++) {
      vx[i] = (vx[i] - x[i] * 0.006) * 0.8; vy[i] = (vy[i] - y[i] * 0.006) * 0.8;
      const speed = Math.hypot(vx[i], vy[i]), limit = 30 * heat;
      const slow = speed > limit ? limit / speed : 1;
      if (i !== dragged) { x[i] += vx[i] * slow; y[i] += vy[i] * slow; }
    }
    heat *= 0.985;
  }

  // The view.
  let scale = 1, left = 0, top = 0, moved = false;
  let hovered = -1, chosen = -1, dragged = -1, found = null;
  function colours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["semantic", "episodic", "procedural", "failed", "mark", "ground", "distill", "step", "text", "page"];
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
  }
  let colour = colours();
  function fit() {
    const visible = nodes.map((_, i) => i).filter((i) => shows(i));
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!visible.length) { scale = 1; left = width / 2; top = height / 2; return; }
    const xs = visible.map((i) => x[i]), ys = visible.map((i) => y[i]);
    const low = [Math.min(...xs), Math.min(...ys)], high = [Math.max(...xs), Math.max(...ys)];
    scale = Math.min(1.8, (width - 80) / (high[0] - low[0] + 1), (height - 80) / (high[1] - low[1] + 1));
    scale = Math.max(0.02, scale);
    left = width / 2 - scale * (low[0] + high[0]) / 2;
    top = height / 2 - scale * (low[1] + high[1]) / 2;
  }
  const shows = (i) => !hidden.has(nodes[i].layer);
  function label(node) {
    const text = (node.name || node.content).replace(/\s+/g, " ").trim();
    return text.length > 34 ? text.slice(0, 33) + "…" : text;
  }
  function draw() {
    const density = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(height * density)) {
      canvas.width = Math.round(width * density); canvas.height = Math.round(height * density);
    }
    pen.setTransform(density, 0, 0, density, 0, 0);
    pen.clearRect(0, 0, width, height);
    const focus = hovered >= 0 ? hovered : chosen;
    const near = focus < 0 ? null : new Set([focus, ...around[focus].flatMap((edge) => [edge.from, edge.to])]);
    const pale = (i) => (near ? !near.has(i) : found ? !found.has(i) : false);
    for (const edge of edges) {
      if (hidden.has(edge.kind) || !shows(edge.from) || !shows(edge.to)) continue;
      const ax = x[edge.from] * scale + left, ay = y[edge.from] * scale + top;
      const bx = x[edge.to] * scale + left, by = y[edge.to] * scale + top;
      const length = Math.hypot(bx - ax, by - ay) || 1;
      const strong = near ? edge.from === focus || edge.to === focus : !(pale(edge.from) || pale(edge.to));
      pen.globalAlpha = strong ? 0.9 : 0.15;
      pen.strokeStyle = pen.fillStyle = colour[edge.kind];
      pen.lineWidth = 0.8 + Math.min(2.2, Math.max(0, edge.weight));
      pen.setLineDash(edge.kind === "step" ? [4, 4] : []);
      pen.beginPath(); pen.moveTo(ax, ay); pen.lineTo(bx, by); pen.stroke();
      if (scale > 0.35 && length > 24) {
        const ux = (bx - ax) / length, uy = (by - ay) / length, end = radius[edge.to] * Math.min(1.4, Math.max(0.5, scale)) + 1;
        const tipX = bx - ux * end, tipY = by - uy * end;
        pen.beginPath(); pen.moveTo(tipX, tipY);
        pen.lineTo(tipX - 8 * ux + 4 * uy, tipY - 8 * uy - 4 * ux);
        pen.lineTo(tipX - 8 * ux - 4 * uy, tipY - 8 * uy + 4 * ux);
        pen.fill();
      }
    }
    pen.setLineDash([]);
    const size = Math.min(1.4, Math.max(0.5, scale));
    const labelled = scale * Math.sqrt(10000 / (count + 1)) > 9;
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    const named = [];
    for (let i = 0; i < count; i++) {
      if (!shows(i)) continue;
      const node = nodes[i], px = x[i] * scale + left, py = y[i] * scale + top;
      pen.globalAlpha = pale(i) ? 0.2 : node.state === "active" ? 1 : 0.5;
      pen.fillStyle = colour[node.layer];
      pen.beginPath(); pen.arc(px, py, radius[i] * size, 0, 2 * Math.PI); pen.fill();
      if (node.status === "failed" || i === chosen) {
        pen.strokeStyle = i === chosen ? colour.mark : colour.failed;
        pen.lineWidth = 3; pen.stroke();
      }
      const inView = px > -100 && px < width + 100 && py > -20 && py < height + 20;
      if (inView && (labelled || (near && near.has(i)) || (found && found.size < 40)) && !pale(i)) named.push(i);
    }
    write(named, focus, size);
    pen.globalAlpha = 1;
    if (!count) {
      pen.fillStyle = colour.text;
      pen.fillText("There is nothing in this memory yet.", width / 2, height / 2);
    }
  }
  function write(places, focus, size) {
    const rank = (i) => (i === focus ? 1e6 : 0) + (nodes[i].layer === "semantic" ? 0 : 100) + radius[i];
    const taken = [];
    pen.globalAlpha = 1; pen.lineWidth = 3; pen.strokeStyle = colour.page; pen.fillStyle = colour.text;
    for (const i of places.sort((one, other) => rank(other) - rank(one)).slice(0, 400)) {
      const text = label(nodes[i]), half = pen.measureText(text).width / 2 + 3;
      const px = x[i] * scale + left, py = y[i] * scale + top + radius[i] * size + 14;
      // A label that would cover another one is left out; pointing at its node shows it.
      if (taken.some(([qx, qy, other]) => Math.abs(px - qx) < half + other && Math.abs(py - qy) < 15)) continue;
      taken.push([px, py, half]);
      pen.strokeText(text, px, py);
      pen.fillText(text, px, py);
    }
  }
  let asked = false;
  function redraw() {
    if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); }
  }
  function animate() {
    const until = performance.now() + 24;
    while (heat > 0.02 && performance.now() < until) settle();
    if (!moved) fit();
    draw();
    if (heat > 0.02) requestAnimationFrame(animate);
  }

  // What is said about a node. Text goes in as text, never as markup.
  function add(parent, tag, text, className) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    parent.append(element);
    return element;
  }
  function nodeButton(parent, place, before) {
    const button = add(parent, "button", (before || "") + label(nodes[place]));
    button.type = "button";
    button.addEventListener("click", () => choose(place));
  }
  const number = (value) => (value === null || value === undefined ? "not scored" : value.toFixed(4));
  function facts(node) {
    const list = [new Date(node.created_at * 1000).toISOString().replace("T", " ").slice(0, 16) + " UTC"];
    for (const [name, value] of Object.entries(node.scope)) list.push(name + " " + value);
    if (node.state !== "active") list.push(node.state);
    if (node.source) list.push("from " + node.source);
    if (node.count > 1) list.push("seen " + node.count + " times");
    if (node.status) list.push(node.status);
    if (node.version) list.push("version " + node.version + ", PEMS " + number(node.pems));
    return list.join(" · ");
  }
  function describe(place) {
    const node = nodes[place];
    side.replaceChildren();
    add(side, "h2", { semantic: "Fact", episodic: "Episode", procedural: "Skill" }[node.layer] + (node.name ? ": " + node.name : ""));
    add(side, "p", node.content);
    add(side, "p", facts(node), "quiet");
    add(side, "p", "id " + node.id, "quiet");
    if (node.trajectory && node.trajectory.length) {
      add(side, "h3", "What happened");
      const list = add(side, "ol");
      for (const [seen, done] of node.trajectory) add(list, "li", (seen ? seen + "\n→ " : "→ ") + done);
    }
    if (node.feedback) { add(side, "h3", "Feedback"); add(side, "p", node.feedback); }
    if (node.versions && node.versions.length) {
      add(side, "h3", "Earlier versions");
      for (const past of node.versions) {
        add(side, "p", "Version " + past.version + ", PEMS " + number(past.pems) + "; " + past.ended_because, "quiet");
        add(side, "p", past.text);
      }
    }
    if (around[place].length) add(side, "h3", "Edges (" + around[place].length + ")");
    for (const edge of around[place]) {
      const out = edge.from === place;
      const counts = edge.succeeded + edge.failed ? " [" + edge.succeeded + " ok, " + edge.failed + " failed]" : "";
      nodeButton(side, out ? edge.to : edge.from, (out ? edgeNames[edge.kind] + " → " : "← " + edgeNames[edge.kind] + " ") + counts + " ");
    }
    listEdits(graph.edits.filter((edit) => edit.targets.includes(node.id) || edit.episode === node.id), "Repairs");
  }
  function listEdits(edits, heading) {
    if (!edits.length) return;
    add(side, "h3", heading + " (" + edits.length + ")");
    for (const edit of edits) {
      const became = edit.kept === null ? "pending" : edit.kept ? "kept" : "rolled back";
      const kind = edit.kind + (edit.granularity ? " (" + edit.granularity + ")" : "");
      add(side, "p", "Round " + edit.round + ": " + kind + ", " + became + ". " + edit.reason);
      for (const id of edit.targets) if (placeOf.has(id)) nodeButton(side, placeOf.get(id));
    }
  }
  function overview() {
    side.replaceChildren();
    if (found) {
      add(side, "h2", found.size + " found");
      [...found].slice(0, 100).forEach((place) => nodeButton(side, place));
      return;
    }
    add(side, "h2", "Memory graph");
    add(side, "p", "Point at a node to read it, click it for its details, drag to move, scroll to zoom.", "quiet");
    const skills = nodes.map((_, i) => i).filter((i) => nodes[i].layer === "procedural");
    if (skills.length) add(side, "h3", "Skills (" + skills.length + ")");
    skills.slice(0, 50).forEach((place) => nodeButton(side, place));
    listEdits(graph.edits, "Repairs");
  }
  function choose(place) {
    chosen = place;
    if (place >= 0) describe(place); else overview();
    redraw();
  }

  // Input.
  function at(event) {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
  function pick(px, py) {
    const size = Math.min(1.4, Math.max(0.5, scale));
    let best = -1, least = Infinity;
    for (let i = 0; i < count; i++) {
      if (!shows(i)) continue;
      const distance = Math.hypot(x[i] * scale + left - px, y[i] * scale + top - py);
      if (distance < radius[i] * size + 5 && distance < least) { best = i; least = distance; }
    }
    return best;
  }
  let down = null;
  canvas.addEventListener("pointerdown", (event) => {
    const [px, py] = at(event);
    dragged = pick(px, py);
    down = { px, py, left, top, far: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = at(event);
    if (down) {
      down.far = down.far || Math.hypot(px - down.px, py - down.py) > 4;
      if (!down.far) return;
      moved = true;
      tooltip.hidden = true;
      if (dragged >= 0) { x[dragged] = (px - left) / scale; y[dragged] = (py - top) / scale; }
      else { left = down.left + px - down.px; top = down.top + py - down.py; }
      redraw();
      return;
    }
    const before = hovered;
    hovered = pick(px, py);
    canvas.style.cursor = hovered >= 0 ? "pointer" : "grab";
    tooltip.hidden = hovered < 0;
    if (hovered >= 0) {
      const text = nodes[hovered].content;
      tooltip.textContent = (text.length > 400 ? text.slice(0, 399) + "…" : text) + "\n" + facts(nodes[hovered]);
      tooltip.style.left = Math.max(4, Math.min(px + 14, canvas.clientWidth - tooltip.offsetWidth - 4)) + "px";
      tooltip.style.top = Math.max(4, Math.min(py + 14, canvas.clientHeight - tooltip.offsetHeight - 4)) + "px";
    }
    if (before !== hovered) redraw();
  });
  canvas.addEventListener("pointerup", () => {
    if (down && !down.far) choose(dragged);
    down = null; dragged = -1;
  });
  canvas.addEventListener("pointerleave", () => { hovered = -1; tooltip.hidden = true; redraw(); });
  function zoom(factor, px, py) {
    const next = Math.min(6, Math.max(0.02, scale * factor));
    left = px - (px - left) * next / scale; top = py - (py - top) * next / scale;
    scale = next; moved = true;
    redraw();
  }
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.0015), ...at(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] }[event.key];
    if (step) { left += step[0]; top += step[1]; moved = true; redraw(); event.preventDefault(); }
    else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.2 : 1 / 1.2, canvas.clientWidth / 2, canvas.clientHeight / 2);
    else if (event.key === "Escape") choose(-1);
  });
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = words.length ? new Set() : null;
    nodes.forEach((node, place) => {
      const text = ((node.name || "") + " " + node.content + " " + (node.source || "") + " " + node.id).toLowerCase();
      if (found && words.every((word) => text.includes(word))) found.add(place);
    });
    choose(-1);
  });
  document.getElementById("fit").addEventListener("click", () => { fit(); redraw(); });
  const legend = document.getElementById("legend");
  function switchFor(name, text, className) {
    const row = add(legend, "label");
    const box = add(row, "input");
    box.type = "checkbox"; box.checked = true;
    box.addEventListener("change", () => { if (box.checked) hidden.delete(name); else hidden.add(name); redraw(); });
    add(row, "span", undefined, "swatch " + className);
    add(row, "span", text);
  }
  for (const [layer, name] of Object.entries(layerNames)) {
    switchFor(layer, name + " " + nodes.filter((node) => node.layer === layer).length, layer);
  }
  for (const [kind, name] of Object.entries({ ground: "evidence", distill: "distilled", step: "step links" })) {
    switchFor(kind, name + " " + edges.filter((edge) => edge.kind === kind).length, "edge " + kind);
  }
  const all = graph.total_nodes === count ? count + " nodes" : "the " + count + " most connected of " + graph.total_nodes + " nodes";
  const lines = graph.total_edges === edges.length ? edges.length + " edges" : edges.length + " of " + graph.total_edges + " edges";
  document.getElementById("counts").textContent = all + ", " + lines;
  window.addEventListener("resize", () => { if (!moved) fit(); redraw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colour = colours(); redraw(); });
  overview();
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) while (heat > 0.02) settle();
  animate();
})();
