// The interactive timeline: redraws the page's static drawing for the visible part of the axis.
// All text is set with textContent; the data were written by the report and are only read.
(() => {
  'use strict';
  const data = JSON.parse(document.getElementById('timeline-data').textContent);
  if (!data.lanes.length) return;
  const $ = (id) => document.getElementById(id);
  const box = $('timeline'), tooltip = $('tooltip'), details = $('details');
  const NS = 'http://www.w3.org/2000/svg';
  const GUTTER = data.gutter, AXIS = data.axis, STRIP = 20, RIGHT = 14, ROW = data.row;
  const MIN_SPAN_NS = 200;
  const end = Math.max(data.end, 1), margin = end * 0.01;
  const full = [-margin, end + margin];
  let view = full.slice(), selected = -1, width = 0, frame = 0;

  // Spans and marks as one list, in the order of time, for the keyboard.
  const items = data.items;
  const order = items.map((_, i) => i).sort((a, b) => items[a].b - items[b].b || items[b].e - items[a].e);

  function element(name, attributes, parent) {
    const e = document.createElementNS(NS, name);
    for (const key in attributes) e.setAttribute(key, attributes[key]);
    if (parent) parent.appendChild(e);
    return e;
  }
  function duration(ns) {
    const digits = (v) => (v < 9.995 ? v.toFixed(2) : v < 99.95 ? v.toFixed(1) : v.toFixed(0));
    if (ns < 1) return '0 s';
    if (ns < 1e3) return ns.toFixed(0) + ' ns';
    if (ns < 999500) return digits(ns / 1e3) + ' µs';
    if (ns < 999500000) return digits(ns / 1e6) + ' ms';
    if (ns < 12e10) return digits(ns / 1e9) + ' s';
    const s = Math.floor(ns / 1e9);
    return s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  }
  function tickText(ns, step) {
    // One unit for all ticks of a view, that of its end; as many decimals as the step needs.
    const [unit, scale] = view[1] >= 1e9 ? ['s', 1e9] : view[1] >= 1e6 ? ['ms', 1e6] : ['µs', 1e3];
    const decimals = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
    return `${(ns / scale).toFixed(decimals)} ${unit}`;
  }
  const x = (ns) => GUTTER + (ns - view[0]) / (view[1] - view[0]) * (width - GUTTER - RIGHT);
  const at = (px) => view[0] + (px - GUTTER) / (width - GUTTER - RIGHT) * (view[1] - view[0]);

  const svg = element('svg', { role: 'application', tabindex: '0', 'aria-roledescription': 'timeline',
    'aria-label': 'Timeline. Plus and minus zoom, left and right move, up and down select, 0 fits.' });
  box.replaceChildren(svg);
  box.classList.add('live');
  $('toolbar').hidden = false;

  function setView(from, to) {
    let length = Math.min(Math.max(to - from, MIN_SPAN_NS), full[1] - full[0]);
    let begin = Math.min(Math.max(from, full[0]), full[1] - length);
    view = [begin, begin + length];
    redraw();
  }
  function zoom(factor, centre) {
    const c = centre === undefined ? (view[0] + view[1]) / 2 : centre;
    setView(c - (c - view[0]) * factor, c + (view[1] - c) * factor);
  }
  function pan(ns) { setView(view[0] + ns, view[1] + ns); }
  function fit() { setView(full[0], full[1]); }
  function showRange(from, to) {
    const room = Math.max((to - from) * 0.04, MIN_SPAN_NS / 2);
    setView(from - room, to + room);
  }

  function redraw() {
    if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw(); });
  }
  function draw() {
    width = Math.max(box.clientWidth, 320);
    const height = data.height + STRIP;
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.setAttribute('height', height);
    const root = document.createDocumentFragment();
    drawStrip(root);
    const plot = element('g', { transform: `translate(0 ${STRIP})` }, root);
    for (const [b, e] of data.outages) {
      const left = Math.max(x(b), GUTTER), right = Math.min(x(e), width - RIGHT);
      if (right <= left) continue;
      element('rect', { class: 'outage', x: left, y: AXIS, width: Math.max(right - left, 1), height: data.height - AXIS }, plot);
      if (right - left > 64) {
        element('text', { class: 'outage-text', x: (left + right) / 2, y: data.height - 6, 'text-anchor': 'middle' }, plot)
          .textContent = 'no power';
      }
    }
    drawTicks(plot);
    for (const counter of data.counters) drawCounter(counter, plot);
    drawItems(plot);
    element('rect', { class: 'gutter', x: 0, y: 0, width: GUTTER - 1, height: data.height }, plot);
    for (const lane of data.lanes) {
      element('line', { class: 'lane-line', x1: 0, x2: width, y1: lane.y, y2: lane.y }, plot);
      element('text', { class: 'lane-text', x: 14, y: lane.y + 21 }, plot).textContent = lane.name;
    }
    svg.replaceChildren(root);
  }
  function drawStrip(root) {
    const all = (ns) => GUTTER + (ns - full[0]) / (full[1] - full[0]) * (width - GUTTER - RIGHT);
    element('text', { class: 'track-text', x: 14, y: 14 }, root).textContent = 'whole run';
    for (const [b, e] of data.outages) {
      element('rect', { class: 'outage', x: all(b), y: 5, width: Math.max(all(e) - all(b), 1), height: 10 }, root);
    }
    const reach = {};
    for (const i of order) {
      const item = items[i], left = all(item.b), right = all(item.e);
      if (item.m || right <= (reach[item.p] || 0) + 0.5) continue;
      const from = Math.max(left, reach[item.p] || 0);
      element('rect', { class: `p${item.p}`, x: from, y: 8, width: Math.max(right - from, 1), height: 4 }, root);
      reach[item.p] = right;
    }
    const left = all(view[0]), right = all(view[1]);
    element('rect', { class: 'window', x: left, y: 2.5, width: Math.max(right - left, 3), height: 15, rx: 3 }, root);
  }
  function drawTicks(plot) {
    const wanted = (view[1] - view[0]) / Math.max(2, (width - GUTTER) / 110);
    const power = Math.pow(10, Math.floor(Math.log10(wanted)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= wanted) || 10 * power;
    for (let n = Math.ceil(view[0] / step); n * step <= view[1]; n++) {
      const px = x(n * step);
      element('line', { class: 'tick', x1: px, x2: px, y1: AXIS, y2: data.height }, plot);
      element('text', { class: 'tick-text', x: px, y: AXIS - 7, 'text-anchor': 'middle' }, plot).textContent = tickText(n * step, step);
    }
  }
  function drawCounter(counter, plot) {
    const top = Math.max(...counter.s.map((s) => s[1]), 1);
    const y = (v) => counter.y + counter.h - 4 - v / top * (counter.h - 10);
    let points = [], before = -1;
    const flush = () => { if (points.length) element('polyline', { class: 'counter', points: points.join(' ') }, plot); };
    for (const [t, v] of counter.s) {
      if (v < before) { flush(); points = []; }   // a counter that falls has started anew
      points.push(`${x(t).toFixed(1)},${y(v).toFixed(1)}`);
      before = v;
    }
    flush();
    element('text', { class: 'track-text', x: GUTTER + 6, y: counter.y + 12 }, plot).textContent = `${counter.n}, up to ${counter.max}`;
  }
  function drawItems(plot) {
    // What would fall onto the pixel drawn last in its row is skipped, so that a long run stays quick.
    const reach = {};
    let chosen = null;
    for (const i of order) {
      const item = items[i];
      if (item.e < view[0] || item.b > view[1]) continue;
      const left = x(item.b), right = x(item.e);
      if (item.m) {
        if (left < (reach[item.y] || -9) + 2 && i !== selected) continue;
        reach[item.y] = left;
        const group = element('g', { class: `mark p${item.p}`, 'data-i': i }, plot);
        element('path', { d: `M${left} ${item.y + 2}l5 6l-5 6l-5 -6z` }, group);
        if (i === selected) chosen = group;
        continue;
      }
      if (right < (reach[item.y] || -9) + 0.6 && i !== selected) continue;
      const from = Math.max(left, GUTTER - 4), w = Math.max(Math.min(right, width + 4) - from, 1.5);
      reach[item.y] = from + w;
      const group = element('g', { class: `span p${item.p}${item.o ? ' open' : ''}`, 'data-i': i }, plot);
      element('rect', { x: from, y: item.y, width: w, height: ROW - 3, rx: Math.min(3, w / 3) }, group);
      const inside = w - 10, full = `${item.n}  ${duration(item.e - item.b)}`;
      const text = full.length * 6.7 < inside ? full : item.n.length * 6.7 < inside ? item.n
        : inside > 26 ? item.n.slice(0, Math.floor(inside / 6.7) - 1) + '…' : '';
      if (text) element('text', { x: Math.max(from, GUTTER) + 5, y: item.y + ROW - 8 }, group).textContent = text;
      if (i === selected) chosen = group;
    }
    if (chosen) { chosen.classList.add('selected'); plot.appendChild(chosen); }
  }

  function facts(item) {
    const rows = [['Where', data.lanes.find((l) => l.id === item.l).name], ['Phase', item.ph]];
    const at = (ns) => `${(ns / 1e9).toFixed(6)} s`;
    rows.push([item.m ? 'At' : 'From', at(item.b)]);
    if (!item.m) rows.push(['To', at(item.e)], ['Duration', duration(item.e - item.b)]);
    if (data.cycles.length > 1) rows.push(['Cycle', String(item.c)]);
    if (item.o) rows.push(['Note', item.m ? 'its begin was never seen' : 'its end was never seen; drawn until the last event of its lane']);
    return rows.concat(item.x);
  }
  function select(i, reveal) {
    selected = i;
    details.hidden = i < 0;
    details.replaceChildren();
    if (i >= 0) {
      const item = items[i];
      const heading = document.createElement('h3');
      heading.textContent = item.n;
      const list = document.createElement('dl');
      for (const [key, value] of facts(item)) {
        const dt = document.createElement('dt'), dd = document.createElement('dd');
        dt.textContent = key; dd.textContent = value;
        list.append(dt, dd);
      }
      details.append(heading, list);
      if (reveal && (item.e < view[0] || item.b > view[1])) {
        const half = (view[1] - view[0]) / 2, middle = (item.b + item.e) / 2;
        setView(middle - half, middle + half);
      }
    }
    redraw();
  }
  function step(direction) {
    const place = order.indexOf(selected);
    const next = selected < 0 ? order.findIndex((i) => items[i].e >= view[0])
      : Math.min(Math.max(place + direction, 0), order.length - 1);
    select(order[Math.max(next, 0)], true);
  }
  function itemOf(target) {
    const group = target.closest && target.closest('[data-i]');
    return group ? Number(group.dataset.i) : -1;
  }
  function showTooltip(i, event) {
    tooltip.hidden = i < 0;
    if (i < 0) return;
    const item = items[i], title = document.createElement('b');
    title.textContent = item.m ? item.n : `${item.n}: ${duration(item.e - item.b)}`;
    tooltip.replaceChildren(title);
    const lines = facts(item).filter(([key]) => !['Duration', 'To'].includes(key)).slice(0, 9);
    for (const [key, value] of lines) {
      const line = document.createElement('div');
      line.textContent = `${key}: ${value.length > 90 ? value.slice(0, 90) + '…' : value}`;
      tooltip.append(line);
    }
    const size = tooltip.getBoundingClientRect();
    tooltip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - size.width - 6))}px`;
    tooltip.style.top = `${event.clientY + 18 + size.height > innerHeight ? event.clientY - size.height - 10 : event.clientY + 18}px`;
  }

  // Pointers: one drags (or clicks), two pinch.
  const pointers = new Map();
  let moved = false, pressed = -1;
  const local = (event) => event.clientX - svg.getBoundingClientRect().left;
  const inStrip = (event) => event.clientY - svg.getBoundingClientRect().top < STRIP;
  svg.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    pressed = itemOf(event.target);
    if (inStrip(event) && local(event) > GUTTER) {
      const middle = full[0] + (local(event) - GUTTER) / (width - GUTTER - RIGHT) * (full[1] - full[0]);
      setView(middle - (view[1] - view[0]) / 2, middle + (view[1] - view[0]) / 2);
      return;
    }
    pointers.set(event.pointerId, local(event));
    svg.setPointerCapture(event.pointerId);
    moved = false;
  });
  svg.addEventListener('pointermove', (event) => {
    if (!pointers.has(event.pointerId)) { showTooltip(itemOf(event.target), event); return; }
    tooltip.hidden = true;
    const before = pointers.get(event.pointerId), now = local(event);
    if (pointers.size === 1) {
      if (!moved && Math.abs(now - before) < 4) return;
      moved = true;
      svg.classList.add('dragging');
      pan(at(before) - at(now));
    } else {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const gap = Math.abs(now - other);
      if (gap > 4) zoom(Math.abs(before - other) / gap, at((now + other) / 2));
      moved = true;
    }
    pointers.set(event.pointerId, now);
  });
  const release = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    svg.classList.remove('dragging');
    if (event.type === 'pointerup' && !moved) select(pressed, false);
  };
  svg.addEventListener('pointerup', release);
  svg.addEventListener('pointercancel', release);
  svg.addEventListener('pointerleave', () => { tooltip.hidden = true; });
  svg.addEventListener('dblclick', (event) => {
    const i = itemOf(event.target);
    if (i >= 0) showRange(items[i].b, items[i].e); else zoom(0.4, at(local(event)));
  });
  svg.addEventListener('wheel', (event) => {
    const unit = event.deltaMode === 1 ? 20 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      pan((event.deltaX || event.deltaY) * unit / (width - GUTTER) * (view[1] - view[0]));
      return;
    }
    // Already fitted: let the page scroll on.
    if (event.deltaY > 0 && view[1] - view[0] >= full[1] - full[0] - 1) return;
    event.preventDefault();
    zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY * unit)) * 0.002), at(local(event)));
  }, { passive: false });
  svg.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const length = view[1] - view[0];
    const actions = {
      ArrowLeft: () => pan(-length / 8), ArrowRight: () => pan(length / 8),
      PageUp: () => pan(-length), PageDown: () => pan(length),
      '+': () => zoom(0.6), '=': () => zoom(0.6), '-': () => zoom(1 / 0.6), '0': fit, f: fit,
      ArrowDown: () => step(1), ArrowUp: () => step(-1), Escape: () => select(-1),
      Enter: () => { if (selected >= 0) showRange(items[selected].b, items[selected].e); },
    };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  });

  $('fit').addEventListener('click', fit);
  $('zoom-in').addEventListener('click', () => zoom(0.6));
  $('zoom-out').addEventListener('click', () => zoom(1 / 0.6));
  const cycle = $('cycle');
  function rangeOf(wanted) {
    let from = Infinity, to = -Infinity;
    for (const item of items) if (wanted(item)) { from = Math.min(from, item.b); to = Math.max(to, item.e); }
    if (from <= to) showRange(from, to);
  }
  const inCycle = (item) => !cycle.value || String(item.c) === cycle.value;
  if (data.cycles.length > 1) {
    $('cycle-label').hidden = false;
    cycle.append(new Option('all', ''), ...data.cycles.map((c) => new Option(String(c), String(c))));
    cycle.addEventListener('change', () => (cycle.value ? rangeOf(inCycle) : fit()));
  }
  for (const [index, phase] of data.phases.entries()) {
    if (index > 6) break;
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = phase;
    button.title = `Zoom to ${phase}`;
    button.addEventListener('click', () => {
      if (!cycle.value && data.cycles.length > 1) cycle.value = String(data.cycles[0]);
      rangeOf((item) => item.ph === phase && inCycle(item));
    });
    $('phases').append(button);
  }
  for (const row of document.querySelectorAll('tr[data-span]')) {
    const show = () => {
      const item = items[Number(row.dataset.span)];
      showRange(item.b, item.e);
      select(Number(row.dataset.span), true);
      box.scrollIntoView({ block: 'nearest' });
    };
    row.tabIndex = 0;
    row.title = 'Show in the timeline';
    row.addEventListener('click', show);
    row.addEventListener('keydown', (event) => { if (event.key === 'Enter') show(); });
  }
  new ResizeObserver(redraw).observe(box);
  addEventListener('beforeprint', draw);
  draw();
})();
