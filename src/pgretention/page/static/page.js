// Draws the tables of numbers as charts and keeps the page up to date. Everything can be read without it.
"use strict";

(() => {
  const root = document.documentElement;
  root.classList.add("js");

  // Charts

  const drawn = new WeakMap(); // what was drawn into which .canvas
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const MINUTE = 60, DAY = 86_400;
  const STEPS = Array.from({ length: 19 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** (power - 6))).flat();

  /** The numbers of a chart's table, the oldest first, and how the table words them. */
  function numbersOf(figure) {
    const table = figure.querySelector("details table");
    const names = [...table.querySelectorAll("thead th")].slice(1).map((cell) => cell.textContent);
    const rows = [...table.querySelectorAll("tbody tr")].reverse();
    const cells = rows.map((row) => [...row.querySelectorAll("td")]);
    const value = (cell) => (cell.dataset.value === "" ? null : Number(cell.dataset.value));
    return {
      at: rows.map((row) => Number(row.querySelector("th").dataset.at)),
      labels: rows.map((row) => row.querySelector("th").textContent),
      columns: names
        .map((name, n) => ({
          name,
          colour: `--series-${(n % 4) + 1}`,
          values: cells.map((row) => value(row[n])),
          texts: cells.map((row) => row[n].textContent),
        }))
        .filter((column) => column.values.some(Boolean)),
    };
  }

  /** Each column on top of the ones before it: where its bars end. */
  function stacked(columns) {
    const ends = [];
    for (const { values } of columns) {
      const below = ends.at(-1);
      ends.push(values.map((value, i) => (value ?? 0) + (below ? below[i] : 0)));
    }
    return ends;
  }

  function draw(figure) {
    const holder = figure.querySelector(".canvas");
    if (!holder) return;
    const before = drawn.get(holder);
    if (!before) figure.querySelector("details").open = false;

    const { chart: shape, axis, unit, limit: most, limitName } = figure.dataset;
    const numbers = numbersOf(figure);
    const ends = shape === "bars" ? stacked(numbers.columns) : numbers.columns.map((column) => column.values);
    const greatest = ends.flat().reduce((a, b) => Math.max(a, b), 0);
    const limit = Number(most) <= 3 * greatest ? { value: Number(most), name: limitName } : null;
    const style = getComputedStyle(root);
    const colours = numbers.columns.map((column) => style.getPropertyValue(column.colour));
    const look = JSON.stringify([numbers.columns.map((column) => column.name), colours, limit, style.fontSize]);
    const now = { ...numbers, ends, top: 1.1 * Math.max(greatest, limit ? limit.value : 0) };

    holder.classList.toggle("zero", greatest === 0);
    if (before?.look === look && greatest) {
      Object.assign(before.now, now);
      before.plot.setData([now.at, ...ends]);
      atRest(before.plot);
      return;
    }
    before?.plot?.destroy();
    holder.replaceChildren();
    drawn.set(holder, { look, now });
    if (greatest === 0) {
      holder.textContent = "All zero.";
      return;
    }
    const plot = new uPlot(optionsOf({ shape, axis, unit, limit, now, colours, style, holder }), [now.at, ...ends], holder);
    atRest(plot);
    drawn.set(holder, { look, now, plot });
    sizes.observe(holder);
  }

  function optionsOf({ shape, axis, unit, limit, now, colours, style, holder }) {
    const colour = (name) => style.getPropertyValue(`--${name}`);
    const em = parseFloat(style.fontSize);
    const font = `${0.75 * em}px ${colour("sans")}`;
    const lines = { stroke: colour("line"), width: 1 };
    const common = { stroke: colour("muted"), font, grid: lines, ticks: { ...lines, size: 4 } };
    const bars = shape === "bars";
    return {
      ...sizeOf(holder),
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      scales: { x: { time: axis === "time", range: () => padded(now.at, axis) }, y: { range: () => [0, now.top] } },
      axes: [
        {
          ...common,
          grid: { show: false },
          size: (u, values) => (values?.some((value) => value?.includes("\n")) ? 2.6 : 1.6) * em,
          space: 4.5 * em,
          label: axis === "time" ? "Time (UTC)" : "Batch",
          labelFont: font,
          labelSize: 1.25 * em,
          ...(axis === "time" ? { values: timesOf } : { incrs: STEPS.filter((step) => step >= 1), values: batchesOf }),
        },
        {
          ...common,
          space: 2 * em,
          incrs: unit === "rows" ? STEPS.filter((step) => step >= 1) : STEPS,
          size: (u, values) => Math.max(0, ...(values ?? []).map((value) => value.length)) * 0.46 * em + em,
          values: (u, splits) => splits.map((value) => amount(value, unit)),
        },
      ],
      series: [
        { value: (u, value, s, i) => (i == null ? "" : `${axis === "time" ? "" : "Batch "}${now.labels[i]}`) },
        ...now.columns.map(({ name }, n) => ({
          label: name,
          value: (u, value, s, i) => (i == null ? "" : now.columns[n].texts[i]),
          ...(bars
            ? { fill: colours[n], width: 0, paths: barsOf(now, n), points: { show: false } }
            : { stroke: colours[n], width: 2, points: { size: 6, fill: colours[n] } }),
        })),
      ],
      cursor: { y: false, drag: { x: false, y: false }, points: { show: !bars } },
      legend: { markers: { width: 0, fill: (u, s) => colours[s - 1] } },
      hooks: {
        setCursor: [(u) => u.cursor.idx == null && atRest(u)],
        draw: limit ? [(u) => drawLimit(u, limit, colour("limit"), colour("surface"), font)] : [],
      },
    };
  }

  /** Without a cursor the legend shows the latest numbers. */
  function atRest(plot) {
    if (plot.cursor.idx == null) plot.setLegend({ idx: plot.data[0].length - 1 });
  }

  /** Room at both ends for half a bar; a single point stands in the middle. */
  function padded(at, axis) {
    const first = at[0], last = at.at(-1);
    const alone = axis === "time" ? DAY / 2 : 1;
    const room = first === last ? alone : Math.max(0.015, 0.6 / (at.length - 1)) * (last - first);
    return [first - room, last + room];
  }

  /** Bars as wide as the closest two of them allow. Where that is too thin, the greatest of some neighbours stands for them. */
  function barsOf(now, n) {
    return (u, series, from, to) => {
      const px = devicePixelRatio, thinnest = 3 * px, slot = 4 * px;
      const place = now.at.map((at) => u.valToPos(at, "x", true));
      const gap = place.reduce((least, x, i) => (i ? Math.min(least, x - place[i - 1]) : least), Infinity);
      const width = Math.max(thinnest, Math.min(0.8 * gap, 36 * px));
      const shown = new Map();
      for (let i = from; i <= to; i++) {
        const key = 0.8 * gap < thinnest ? Math.floor(place[i] / slot) * slot : place[i] - width / 2;
        if (!(now.ends.at(-1)[shown.get(key)] > now.ends.at(-1)[i])) shown.set(key, i);
      }
      const fill = new Path2D();
      for (const [left, i] of shown) {
        if (!now.columns[n].values[i]) continue;
        const bottom = u.valToPos(n ? now.ends[n - 1][i] : 0, "y", true);
        const height = bottom - u.valToPos(now.ends[n][i], "y", true);
        const seam = n && height > 4 * px ? px : 0; // sets a column off from the one below
        fill.rect(left, bottom - Math.max(height, px), width, Math.max(height, px) - seam);
      }
      return { fill, stroke: null };
    };
  }

  function drawLimit({ ctx, bbox, valToPos }, { value, name }, colour, halo, font) {
    const y = valToPos(value, "y", true), px = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = colour;
    ctx.lineWidth = 1.5 * px;
    ctx.setLineDash([6 * px, 4 * px]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.font = font.replace(/^[\d.]+/, (size) => size * px);
    ctx.textAlign = "right";
    ctx.textBaseline = "top";
    ctx.strokeStyle = halo;
    ctx.lineWidth = 4 * px;
    ctx.strokeText(name, bbox.left + bbox.width - 4 * px, y + 5 * px);
    ctx.fillStyle = colour;
    ctx.fillText(name, bbox.left + bbox.width - 4 * px, y + 5 * px);
    ctx.restore();
  }

  function timesOf(u, splits, axis, space, step) {
    const two = (number) => String(number).padStart(2, "0");
    let day = "";
    return splits.map((at) => {
      const date = new Date(at * 1000);
      const month = MONTHS[date.getUTCMonth()];
      if (step >= 28 * DAY) return `${month} ${date.getUTCFullYear()}`;
      const today = `${date.getUTCDate()} ${month}`;
      if (step >= DAY) return today;
      const time = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}${step < MINUTE ? `:${two(date.getUTCSeconds())}` : ""}`;
      if (today === day) return time;
      day = today;
      return `${time}\n${today}`;
    });
  }

  const batchesOf = (u, splits) => splits.map((at) => (at < 1 ? "" : at.toLocaleString("en-US")));

  const amount = (value, unit) =>
    value.toLocaleString("en-US", { maximumFractionDigits: 6 }) + (unit === "seconds" ? " s" : "");

  const sizeOf = (holder) => ({ width: holder.clientWidth, height: 14.5 * parseFloat(getComputedStyle(root).fontSize) });

  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) drawn.get(target)?.plot?.setSize(sizeOf(target));
  });

  function drawAll() {
    for (const figure of document.querySelectorAll("figure.chart")) draw(figure);
  }

  // News

  const livesOf = (doc) => new Map([...doc.querySelectorAll("[data-live][id]")].map((part) => [part.id, part]));
  const sourcesOf = (lives) => new Map([...lives].map(([id, part]) => [id, part.outerHTML]));

  let known = sourcesOf(livesOf(document)); // as the worker sent it, before anything was drawn
  let timer = 0, asking = false;

  async function ask() {
    clearTimeout(timer);
    if (asking || document.hidden) return;
    asking = true;
    let answered = false;
    try {
      const address = location.origin + location.pathname + location.search;
      const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(15_000) });
      if (!answer.ok) throw new Error(answer.statusText);
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      answered = true;
    } catch (error) {
      console.debug(error);
    }
    const lost = document.getElementById("lost");
    if (lost.hidden !== answered) lost.hidden = answered;
    asking = false;
    wait();
  }

  function wait() {
    clearTimeout(timer);
    const seconds = Number(document.body.dataset.refresh);
    if (seconds && !document.hidden) timer = setTimeout(ask, seconds * 1000);
  }

  function show(fresh) {
    const parts = livesOf(fresh), sources = sourcesOf(parts);
    if ([...parts.keys()].some((id) => !known.has(id))) return location.reload(); // another page altogether
    for (const [id, part] of parts) {
      const old = document.getElementById(id);
      if (!old || sources.get(id) === known.get(id)) continue;
      keepingFocus(old, () => update(old, part));
      for (const figure of [old, ...old.querySelectorAll("figure.chart")]) if (figure.matches("figure.chart")) draw(figure);
    }
    known = sources;
    if (document.title !== fresh.title) document.title = fresh.title;
    const { refresh } = fresh.body.dataset;
    if (!refresh) delete document.body.dataset.refresh;
    else if (document.body.dataset.refresh !== refresh) document.body.dataset.refresh = refresh;
  }

  /** Whoever was at something in `part` is at the same thing after the change, if it is still there. */
  function keepingFocus(part, change) {
    const held = document.activeElement;
    const was = part.contains(held) ? held.outerHTML : null;
    change();
    if (was === null || (part.contains(held) && held.outerHTML === was)) return;
    const same = [...part.querySelectorAll("a, summary, [tabindex]")].find((each) => each.outerHTML === was);
    same?.focus({ preventScroll: true });
  }

  /** Makes `old` say what `fresh` says and leaves alone what is the same: focus, scrolling, open details, charts. */
  function update(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.matches(".canvas")) return;
    for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) {
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const wanted = new Set([...fresh.childNodes].map(keyOf));
    const keyed = new Map();
    for (const child of [...old.childNodes]) {
      const key = keyOf(child);
      if (key && !wanted.has(key)) child.remove();
      else if (key) keyed.set(key, child);
    }
    let next = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const key = keyOf(child);
      const same = key ? keyed.get(key) : next;
      if (!same || same.nodeName !== child.nodeName || keyOf(same) !== key) {
        old.insertBefore(document.importNode(child, true), next);
        continue;
      }
      if (same === next) next = next.nextSibling;
      else old.insertBefore(same, next);
      update(same, child);
    }
    while (next) {
      const rest = next.nextSibling;
      next.remove();
      next = rest;
    }
  }

  /** What makes a child the same one as before: its id, or where its row leads. */
  function keyOf(node) {
    if (node.nodeType !== Node.ELEMENT_NODE) return "";
    if (node.id) return `#${node.id}`;
    return node.matches("tr") ? (node.querySelector("a[href]")?.getAttribute("href") ?? "") : "";
  }

  // Beginning

  if (window.uPlot) {
    drawAll();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  } else {
    for (const holder of document.querySelectorAll(".canvas")) holder.remove();
  }
  document.addEventListener("visibilitychange", () => document.body.dataset.refresh && ask());
  wait();
})();
