"use strict";
// Draws the plots of the page from the numbers in it. Nothing is fetched. A cell without a value is a hole in the line.
(async () => {
  const told = JSON.parse(document.getElementById("plots-data").textContent);
  const note = document.getElementById("no-plots");
  let numbers;
  try {
    const packed = Uint8Array.from(atob(told.values), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    numbers = unshuffled(new Uint8Array(await new Response(stream).arrayBuffer()));
  } catch (error) {
    note.textContent = "This browser cannot unpack the plots (" + error + "); the tables below them have the figures.";
    return;
  }
  note.remove();
  const colours = told.hosts.map((_, place) => place);
  const shown = told.hosts.map(() => true);
  const view = { from: 0, to: told.count, over: false };
  const plots = told.plots.map((plot) => new Chart(plot));
  controls();
  redraw();

  // Low bytes first, then high bytes: neighbours are alike, and compress better so.
  function unshuffled(bytes) {
    const half = bytes.length / 2, out = new Uint16Array(half);
    for (let n = 0; n < half; n++) out[n] = bytes[n] | (bytes[half + n] << 8);
    return out;
  }

  function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
  function dark() { return matchMedia("(prefers-color-scheme: dark)").matches ? document.documentElement.dataset.theme !== "light" : document.documentElement.dataset.theme === "dark"; }
  function colour(place, alpha) {
    const hue = (colours[place] * 137.508) % 360;
    return `hsl(${hue} 65% ${dark() ? 65 : 42}% / ${alpha})`;
  }

  function human(value, unit) {
    if (value === null) return "–";
    if (unit === "ratio") return +(value * 100).toPrecision(3) + " %";
    if (unit.startsWith("bytes")) {
      const names = ["B", "KiB", "MiB", "GiB", "TiB"]; let n = 0;
      while (Math.abs(value) >= 1024 && n < 4) { value /= 1024; n++; }
      return value.toFixed(n && Math.abs(value) < 100 ? 1 : 0) + " " + names[n] + unit.slice(5);
    }
    const steps = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
    const suffix = { hertz: " Hz", watts: " W", "1/s": "/s", cores: "" }[unit] ?? "";
    for (const [size, name] of steps) if (Math.abs(value) >= size) return +(value / size).toPrecision(3) + name + suffix;
    return +value.toPrecision(3) + suffix;
  }

  // Levels people can read: powers of two for bytes, else 1, 2 or 5 times a power of ten.
  function stepOf(least, binary) {
    if (binary) return 2 ** Math.max(0, Math.ceil(Math.log2(least)));
    const size = 10 ** Math.floor(Math.log10(least)), share = least / size;
    return size * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
  }

  function clock(cell) {
    const date = new Date(told.start_ms + cell * told.width_ms);
    return date.toISOString().slice(11, told.width_ms < 1000 ? 23 : 19);
  }

  function Chart(plot) {
    const card = document.getElementById("plot-" + plot.name);
    const canvas = card.querySelector("canvas");
    const tip = document.createElement("div");
    tip.className = "tip"; tip.hidden = true; card.append(tip);
    const scale = (plot.high - plot.low) / 65534;
    const parts = plot.parts; // 3: least, mean, most; 1: the mean alone
    const place = new Map(plot.hosts.map((host, n) => [host, n]));
    const all = overall();
    let pointer = null, drag = null;

    function value(host, part, cell) {
      const number = numbers[plot.begin + (place.get(host) * parts + part) * told.count + cell];
      return number === 0 ? null : plot.low + (number - 1) * scale;
    }
    function overall() {
      const sums = new Array(told.count).fill(null), counts = new Array(told.count).fill(0);
      for (const host of plot.hosts) for (let cell = 0; cell < told.count; cell++) {
        const one = value(host, parts === 3 ? 1 : 0, cell);
        if (one !== null) { sums[cell] = (sums[cell] ?? 0) + one; counts[cell]++; }
      }
      if (plot.over === "mean") sums.forEach((sum, cell) => { if (sum !== null) sums[cell] = sum / counts[cell]; });
      return { sums, counts };
    }
    function lines() {
      if (view.over) return [{ host: null, mean: (cell) => all.sums[cell] }];
      return plot.hosts.filter((host) => shown[host]).map((host) => ({
        host, mean: (cell) => value(host, parts === 3 ? 1 : 0, cell),
        least: parts === 3 ? (cell) => value(host, 0, cell) : null, most: parts === 3 ? (cell) => value(host, 2, cell) : null,
      }));
    }
    this.draw = () => {
      const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
      canvas.width = width * ratio; canvas.height = height * ratio;
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio); pen.font = "11px system-ui, sans-serif";
      const every = lines(), box = { left: 62, top: 8, right: width - 8, bottom: height - 18 };
      let low = plot.unit === "hertz" ? Infinity : 0, high = -Infinity;
      for (const line of every) for (let cell = view.from; cell < view.to; cell++) {
        const top = (line.most && every.length <= 8 ? line.most : line.mean)(cell), bottom = line.mean(cell);
        if (top !== null) { high = Math.max(high, top); low = Math.min(low, bottom); }
      }
      if (high === -Infinity) { pen.fillStyle = css("--soft"); pen.fillText("no values here", box.left, height / 2); this.at = null; return; }
      if (high <= low) high = low + (low || 1);
      const step = stepOf((high - low) / 4, plot.unit.startsWith("bytes"));
      low = Math.floor(low / step) * step; high = Math.ceil(high / step - 1e-9) * step;
      const x = (cell) => box.left + (cell - view.from) / Math.max(1, view.to - view.from - 1) * (box.right - box.left);
      const y = (one) => box.bottom - (one - low) / (high - low) * (box.bottom - box.top);
      pen.strokeStyle = css("--line"); pen.fillStyle = css("--soft"); pen.lineWidth = 1;
      for (let level = low; level <= high + step / 2; level += step) {
        pen.beginPath(); pen.moveTo(box.left, y(level)); pen.lineTo(box.right, y(level)); pen.stroke();
        pen.textAlign = "right"; pen.textBaseline = "middle"; pen.fillText(human(level, plot.unit), box.left - 5, y(level));
      }
      pen.textBaseline = "top"; pen.textAlign = "left"; pen.fillText(clock(view.from), box.left, box.bottom + 4);
      pen.textAlign = "right"; pen.fillText(clock(view.to - 1), box.right, box.bottom + 4);
      pen.save(); pen.beginPath(); pen.rect(box.left, box.top - 2, box.right - box.left, box.bottom - box.top + 4); pen.clip();
      for (const line of every) {
        if (line.least && every.length <= 8) band(pen, line, x, y);
        pen.strokeStyle = line.host === null ? css("--all") : colour(line.host, every.length > 16 ? 0.55 : 0.9);
        pen.lineWidth = every.length > 16 ? 1 : 1.5;
        stroke(pen, line.mean, x, y);
      }
      pen.restore();
      this.at = { every, x, y, box };
      if (drag) { pen.fillStyle = css("--all") + "33"; pen.fillRect(Math.min(drag.from, drag.to), box.top, Math.abs(drag.to - drag.from), box.bottom - box.top); }
    };
    function stroke(pen, mean, x, y) {
      pen.beginPath();
      let open = false;
      for (let cell = view.from; cell < view.to; cell++) {
        const one = mean(cell);
        if (one === null) { open = false; continue; }
        if (!open) { pen.moveTo(x(cell), y(one)); pen.lineTo(x(cell) + 0.7, y(one)); } else pen.lineTo(x(cell), y(one));
        open = true;
      }
      pen.stroke();
    }
    function band(pen, line, x, y) {
      pen.fillStyle = colour(line.host, 0.16);
      const step = Math.max(1, x(view.from + 1) - x(view.from));
      for (let cell = view.from; cell < view.to; cell++) {
        const top = line.most(cell), bottom = line.least(cell);
        if (top !== null && top > bottom) pen.fillRect(x(cell) - step / 2, y(top), step, y(bottom) - y(top));
      }
    }
    const cellAt = (left) => {
      const { box } = this.at, share = (left - box.left) / (box.right - box.left);
      return Math.min(view.to - 1, Math.max(view.from, view.from + Math.round(share * (view.to - view.from - 1))));
    };
    canvas.addEventListener("pointermove", (event) => {
      if (!this.at) return;
      pointer = event.offsetX;
      if (drag) { drag.to = pointer; this.draw(); }
      const cell = cellAt(pointer);
      const rows = this.at.every.map((line) => [line, line.mean(cell)]).filter(([, one]) => one !== null);
      const near = rows.map(([line, one]) => [Math.abs(this.at.y(one) - event.offsetY), line, one]).sort((a, b) => a[0] - b[0]).slice(0, 6);
      tip.replaceChildren(row(clock(cell) + " UTC", ""), ...(near.length ? near.map(([, line, one]) => row(
        line.host === null ? `${plot.over} of ${all.counts[cell]} nodes` : told.hosts[line.host], human(one, plot.unit), line.host)) : [row("no value", "")]));
      tip.hidden = false;
      tip.style.left = Math.min(pointer + 14, card.clientWidth - tip.offsetWidth - 6) + "px";
      tip.style.top = canvas.offsetTop + 8 + "px";
    });
    function row(name, text, host) {
      const line = document.createElement("div");
      line.textContent = text ? name + "  " + text : name;
      if (host !== undefined && host !== null) line.style.color = colour(host, 1);
      return line;
    }
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; if (!drag) pointer = null; });
    canvas.addEventListener("pointerdown", (event) => { if (this.at) { drag = { from: event.offsetX, to: event.offsetX }; canvas.setPointerCapture(event.pointerId); } });
    canvas.addEventListener("pointerup", () => {
      if (!drag) return;
      const ends = [cellAt(drag.from), cellAt(drag.to)].sort((a, b) => a - b), wide = Math.abs(drag.to - drag.from) > 6;
      drag = null;
      if (wide && ends[1] > ends[0]) { view.from = ends[0]; view.to = ends[1] + 1; }
      redraw();
    });
    canvas.addEventListener("dblclick", whole);
    canvas.addEventListener("keydown", (event) => {
      const width = view.to - view.from, step = Math.max(1, Math.round(width / 4));
      const moves = { ArrowLeft: [-step, -step], ArrowRight: [step, step], "+": [step, -step], "-": [-step, step] };
      if (event.key === "Escape") whole();
      if (!moves[event.key]) return;
      event.preventDefault();
      const from = Math.max(0, view.from + moves[event.key][0]), to = Math.min(told.count, view.to + moves[event.key][1]);
      if (to - from >= 2) { view.from = from; view.to = to; redraw(); }
    });
  }

  function whole() { view.from = 0; view.to = told.count; redraw(); }
  function redraw() { for (const plot of plots) plot.draw(); }

  function controls() {
    const list = document.getElementById("hosts");
    const boxes = told.hosts.map((host, place) => {
      const label = document.createElement("label"), box = document.createElement("input"), mark = document.createElement("i");
      box.type = "checkbox"; box.checked = true;
      box.addEventListener("change", () => { shown[place] = box.checked; redraw(); });
      mark.style.background = colour(place, 1);
      label.append(box, mark, host); list.append(label);
      return { host, box, label };
    });
    const set = (wanted) => { boxes.forEach((one, place) => { one.box.checked = shown[place] = wanted(one, place); }); redraw(); };
    document.getElementById("every").addEventListener("click", () => set(() => true));
    document.getElementById("none").addEventListener("click", () => set(() => false));
    document.getElementById("filter").addEventListener("input", (event) => {
      const text = event.target.value.trim();
      for (const { host, label } of boxes) label.hidden = !host.includes(text);
      set(({ host }) => host.includes(text));
    });
    const over = document.getElementById("over");
    over.addEventListener("click", () => { view.over = !view.over; over.setAttribute("aria-pressed", view.over); over.textContent = view.over ? "show each node" : "show all nodes together"; redraw(); });
    document.getElementById("whole").addEventListener("click", whole);
    document.getElementById("theme").addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; repaint(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    addEventListener("resize", redraw); addEventListener("beforeprint", redraw); addEventListener("afterprint", redraw);
    function repaint() { boxes.forEach(({ label }, place) => { label.querySelector("i").style.background = colour(place, 1); }); redraw(); }
  }
})();
