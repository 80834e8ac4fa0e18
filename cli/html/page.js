'use strict';
(() => {
  const jobs = JSON.parse(document.getElementById('data').textContent);
  if (!jobs.length) return;
  const $ = (selector) => document.querySelector(selector);
  // Okabe and Ito's colours; each channel and kind has a pattern of its own too.
  const COLOURS = ['#56b4e9', '#e69f00', '#009e73', '#f0e442', '#999999', '#cc79a7', '#d55e00', '#0072b2'];
  const PATTERNS = ['', 'M0 8L8 0', 'M0 0L8 8', 'M0 4H8', 'M4 0V8', 'M0 4H8M4 0V8', 'M0 0L8 8M0 8L8 0', 'M2 2h2v2h-2z'];

  const node = (name, attributes, ...children) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    element.append(...children.filter((child) => child !== null));
    return element;
  };
  const title = (text) => node('title', {}, text);
  const label = (x, y, text, anchor = 'start', kind = '') =>
    node('text', { x, y, 'text-anchor': anchor, class: kind }, text);
  let made = 0;
  // Identifiers of patterns are unique in the page: each picture has its own.
  const picture = (width, height, name) => {
    const id = 'p' + made++;
    const defs = node('defs', {}, ...COLOURS.map((colour, i) =>
      node('pattern', { id: id + '-' + i, width: 8, height: 8, patternUnits: 'userSpaceOnUse' },
        node('rect', { width: 8, height: 8, fill: colour }),
        PATTERNS[i] ? node('path', { d: PATTERNS[i], stroke: '#000', 'stroke-opacity': .4, 'stroke-width': 1.2, fill: 'none' }) : null)));
    const svg = node('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': name }, defs);
    svg.fill = (i) => `url(#${id}-${i % COLOURS.length})`;
    return svg;
  };
  const legend = (place, names) => place.replaceChildren(...names.map(([i, text]) => {
    const svg = picture(22, 14, text);
    svg.append(node('rect', { width: 22, height: 14, fill: svg.fill(i) }));
    const item = document.createElement('span');
    item.append(svg, text);
    return item;
  }));

  const count = (n) => n.toLocaleString('en');
  const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  const bytes = (n) => {
    let i = 0;
    while (n >= 1024 && i < UNITS.length - 1) { n /= 1024; ++i; }
    return (i && n < 10 ? n.toFixed(1) : Math.round(n)) + ' ' + UNITS[i];
  };
  const time = (us) => us >= 1e6 ? +(us / 1e6).toFixed(us >= 1e8 ? 0 : 2) + ' s' : us >= 1e3 ? +(us / 1e3).toFixed(1) + ' ms' : Math.round(us) + ' us';
  const messages = (n) => count(n) + (n === 1 ? ' message' : ' messages');
  const ticks = (most, about) => {
    const raw = most / about, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const list = [];
    for (let v = 0; v <= most * 1.0001 && list.length < 50; v += step) list.push(v);
    return list;
  };
  const timeAxis = (svg, x, end, top, bottom) => {
    for (const t of ticks(end, 8)) {
      svg.append(node('line', { x1: x(t), x2: x(t), y1: top, y2: bottom, class: 'axis' }),
        label(x(t), bottom + 16, time(t), 'middle', 'dim'));
    }
  };
  const nothing = (place, text) => { const p = document.createElement('p'); p.textContent = text; place.replaceChildren(p); };

  const timeline = (job) => {
    const part = $('#timeline'), chart = part.querySelector('.chart'), pairs = job.pairs.list;
    const left = job.pairs.all - pairs.length;
    part.querySelector('.hint').textContent =
      (left > 0 ? `The ${pairs.length} pairs with the most messages; ${count(left)} pairs with fewer are left out. ` : '') +
      'Hover over a bar for its messages and the reason. ' +
      (job.aligned ? 'Time starts with the first process.' : 'Some reports lack the wall-clock time: each time starts with its own process.');
    if (!pairs.length) { legend(part.querySelector('.legend'), []); nothing(chart, 'No pair exchanged messages.'); return; }
    const used = new Set(pairs.flatMap((p) => p.spans.map((s) => s[0])));
    legend(part.querySelector('.legend'), job.channels.map((n, i) => [i, n]).filter(([i]) => used.has(i)));
    const row = 20, names = 170, width = 1150, height = pairs.length * row + 30, end = Math.max(job.end, 1);
    const svg = picture(width, height, 'channels over time'), x = (t) => names + Math.min(t / end, 1) * (width - names - 30);
    timeAxis(svg, x, end, 0, height - 26);
    pairs.forEach((pair, i) => {
      svg.append(label(names - 8, i * row + 14, `${pair.from} \u2192 ${pair.to}`, 'end'));
      pair.spans.forEach((span, k) => {
        const to = k + 1 < pair.spans.length ? pair.spans[k + 1][1] : pair.end;
        const wide = Math.max(x(to) - x(span[1]), 1.5), last = k + 1 === pair.spans.length;
        svg.append(node('rect', { x: x(span[1]), y: i * row + 2, width: wide, height: row - 5, fill: svg.fill(span[0]) },
          title(`${pair.from} to ${pair.to}: ${job.channels[span[0]]} from ${time(span[1])} to ${time(to)}\n${messages(span[2])}, ${bytes(span[3])}` +
            (last && pair.why ? '\nwhy: ' + pair.why : ''))));
      });
    });
    chart.replaceChildren(svg);
  };

  const matrix = (job) => {
    const part = $('#matrix'), chart = part.querySelector('.chart'), { names, cells, of } = job.matrix;
    part.querySelector('.hint').textContent = `One row per sender, one column per receiver; each is one ${of}.`.replace('each is one process.', 'each is a process.');
    if (!cells.length) { nothing(chart, 'No messages.'); return; }
    const side = Math.max(7, Math.min(56, 440 / names.length)), edge = 96, size = edge + side * names.length + 10;
    const most = Math.max(...cells.map((c) => c[3]), 2);
    const every = Math.ceil(14 / side);
    const draw = (caption, cell) => {
      const svg = picture(size, size, caption), grid = edge + side * names.length;
      names.forEach((name, i) => {
        const at = edge + (i + .5) * side;
        if (i % every) return;
        const short = name.length > 15 ? name.slice(0, 14) + '\u2026' : name;
        svg.append(label(edge - 6, at + 4, short, 'end'),
          node('text', { transform: `translate(${at + 4} ${edge - 6}) rotate(-90)` }, short));
      });
      svg.append(node('rect', { x: edge, y: edge, width: grid - edge, height: grid - edge, fill: 'none', class: 'axis' }));
      for (const c of cells) {
        const used = c[4].map((n, k) => [n, job.channels[k]]).filter(([n]) => n);
        const rect = node('rect', { x: edge + c[1] * side, y: edge + c[0] * side, width: side - (side > 9 ? 1 : 0), height: side - (side > 9 ? 1 : 0) },
          title(`${names[c[0]]} to ${names[c[1]]}: ${messages(c[2])}, ${bytes(c[3])}\nat the end ` + used.map(([n, k]) => `${k}: ${count(n)}`).join(', ')));
        cell(rect, c, svg);
        svg.append(rect);
      }
      const figure = document.createElement('figure'), words = document.createElement('figcaption');
      words.textContent = caption;
      figure.append(words, svg);
      return figure;
    };
    chart.replaceChildren(
      draw(`Bytes: the highest is ${bytes(most)}; logarithmic scale`, (rect, c) =>
        rect.setAttribute('style', `fill: rgba(var(--scale), ${(.08 + .92 * Math.log2(1 + c[3]) ** 2 / Math.log2(1 + most) ** 2).toFixed(3)})`)),
      draw('Channel at exit (of most pairs in the cell)', (rect, c, svg) =>
        rect.setAttribute('fill', svg.fill(c[4].indexOf(Math.max(...c[4]))))));
  };

  const memoryOf = (job, one) => {
    const part = $('#memory'), chart = part.querySelector('.chart');
    // The largest kinds have colours of their own, the others share one.
    const order = one.kinds.map((k, i) => i).sort((a, b) => one.kinds[b][1] - one.kinds[a][1]);
    const layers = order.slice(0, 7).map((i) => [one.kinds[i][0], [i]]);
    if (order.length > 7) layers.push([`${order.length - 7} other kinds`, order.slice(7)]);
    legend(part.querySelector('.legend'), layers.map(([name], i) => [i, name]));
    if (!one.points.length) {
      nothing(chart, `This report has no memory over time. Peak: ${bytes(one.peak)} of ${bytes(one.budget)}: ` +
        one.kinds.map(([name, peak]) => `${name} ${bytes(peak)}`).join(', ') + '.');
      return;
    }
    const width = 1150, height = 280, left = 80, bottom = height - 28, top = 12;
    const most = Math.max($('#full').checked ? one.budget : 0, one.peak) * 1.05 || 1, end = Math.max(job.end, 1);
    const svg = picture(width, height, 'memory by kind over time');
    const x = (t) => left + Math.min(t / end, 1) * (width - left - 30), y = (v) => bottom - v / most * (bottom - top);
    timeAxis(svg, x, end, top, bottom);
    for (let i = 0; i <= 4; ++i) svg.append(label(left - 8, y(most * i / 4) + 4, bytes(most * i / 4), 'end', 'dim'));
    const points = one.points, base = points.map(() => 0);
    layers.forEach(([name, kinds], layer) => {
      let up = '', down = '';
      points.forEach((p, i) => {
        const from = x(p[0]), to = x(i + 1 < points.length ? points[i + 1][0] : one.end), low = y(base[i]);
        for (const k of kinds) base[i] += p[k + 1];
        up += `L${from.toFixed(1)} ${y(base[i]).toFixed(1)}L${to.toFixed(1)} ${y(base[i]).toFixed(1)}`;
        down = `L${to.toFixed(1)} ${low.toFixed(1)}L${from.toFixed(1)} ${low.toFixed(1)}` + down;
      });
      svg.append(node('path', { d: 'M' + up.slice(1) + down + 'Z', fill: svg.fill(layer) },
        title(`${name}: ${bytes(kinds.reduce((sum, k) => sum + one.kinds[k][1], 0))} at its peak`)));
    });
    if (one.budget <= most) {
      svg.append(node('line', { x1: left, x2: width - 30, y1: y(one.budget), y2: y(one.budget), class: 'budget' }),
        label(width - 34, y(one.budget) - 5 < 10 ? y(one.budget) + 14 : y(one.budget) - 5, `budget ${bytes(one.budget)}`, 'end'));
    }
    chart.replaceChildren(svg);
  };
  const memory = (job) => {
    const part = $('#memory'), choose = $('#process'), all = job.memory;
    part.querySelector('.hint').textContent = `Bytes held by kind. The dashed line is the budget.` +
      (job.peaks.length > all.length ? ` Over time for the ${all.length} processes nearest to their budget; below, the peak of each.` : '');
    choose.replaceChildren(...all.map((one, i) => new Option(`${one.name} (peak ${bytes(one.peak)} of ${bytes(one.budget)})`, i)));
    const draw = () => { if (all.length) memoryOf(job, all[choose.value]); };
    choose.onchange = $('#full').onchange = draw;
    $('#full').checked = all.length > 0 && all[0].peak > .3 * all[0].budget;
    draw();
    const peaks = job.peaks, width = 1150, height = 130, left = 80, bottom = height - 24;
    const svg = picture(width, height, 'peak of each process as a share of its budget');
    const wide = Math.min((width - left - 30) / Math.max(peaks.length, 1), 40);
    const y = (share) => bottom - Math.min(share, 1.05) * (bottom - 14);
    for (const share of [0, .5, 1]) {
      svg.append(node('line', { x1: left, x2: width - 30, y1: y(share), y2: y(share), class: share === 1 ? 'budget' : 'axis' }),
        label(left - 8, y(share) + 4, share * 100 + ' %', 'end', 'dim'));
    }
    peaks.forEach(([name, peak, budget], i) => {
      const share = peak / Math.max(budget, 1);
      svg.append(node('rect', { x: left + i * wide, y: y(share), width: Math.max(wide - (wide > 3 ? 1 : 0), .5), height: Math.max(bottom - y(share), 1), fill: svg.fill(share >= .9 ? 6 : 0) },
        title(`${name}: ${bytes(peak)} of ${bytes(budget)} (${Math.round(share * 100)} %)`)));
    });
    svg.append(label(left, height - 6, 'peak of each process as a share of its budget, in order of rank', 'start', 'dim'));
    part.querySelector('.peaks').replaceChildren(svg);
  };

  const sizes = (job) => {
    const part = $('#sizes'), chart = part.querySelector('.chart'), { bins, kinds } = job.sizes;
    part.querySelector('.hint').textContent = 'Number of messages by size, headers included.';
    legend(part.querySelector('.legend'), bins.length ? kinds.map((k, i) => [i, k]) : []);
    if (!bins.length) { nothing(chart, 'These reports have no message sizes.'); return; }
    const first = bins[0][0], n = bins[bins.length - 1][0] - first + 1, by = new Map(bins.map((b) => [b[0], b]));
    const sum = (b) => b.slice(1).reduce((a, v) => a + v, 0), most = Math.max(...bins.map(sum));
    const width = 1150, height = 250, left = 80, bottom = height - 40, top = 16, wide = Math.min((width - left - 30) / n, 90);
    const svg = picture(width, height, 'messages by size'), y = (v) => bottom - v / most * (bottom - top);
    for (const v of ticks(most, 4)) {
      svg.append(node('line', { x1: left, x2: width - 30, y1: y(v), y2: y(v), class: 'axis' }), label(left - 8, y(v) + 4, count(v), 'end', 'dim'));
    }
    for (let i = 0; i < n; ++i) {
      const bin = by.get(first + i), from = first + i === 0 ? 0 : 2 ** (first + i - 1), below = 2 ** (first + i);
      const at = left + i * wide;
      svg.append(label(at + wide / 2, bottom + 16, bytes(from).replace(' ', '\u00a0'), 'middle', 'dim'));
      if (!bin) continue;
      let base = 0;
      bin.slice(1).forEach((v, k) => {
        if (!v) return;
        svg.append(node('rect', { x: at + 3, y: Math.min(y(base + v), y(base) - 2), width: wide - 6, height: Math.max(y(base) - y(base + v), 2), fill: svg.fill(k) },
          title(`${kinds[k]}, ${bytes(from)} to below ${bytes(below)}: ${messages(v)}`)));
        base += v;
      });
    }
    svg.append(label(left, height - 6, 'this size or more, below the next', 'start', 'dim'));
    chart.replaceChildren(svg);
  };

  const decisions = (job) => {
    const part = $('#decisions'), body = part.querySelector('tbody'), { all, list } = job.decisions;
    part.querySelector('.hint').textContent = 'The receiver decides.' +
      (all > list.length ? ` The latest ${count(list.length)} of ${count(all)} decisions.` : '');
    const rows = list.map((d) => [time(d[0]), d[1], d[2], `${job.channels[d[3]]} \u2192 ${job.channels[d[4]]}`, d[5], d[6]]);
    const draw = () => {
      const words = $('#filter').value.toLowerCase();
      const found = rows.filter((row) => row.join(' ').toLowerCase().includes(words));
      body.replaceChildren(...found.slice(0, 500).map((row) => {
        const line = document.createElement('tr');
        for (const text of row) line.insertCell().textContent = text;
        return line;
      }));
      $('#shown').textContent = `${count(found.length)} found` + (found.length > 500 ? ', the first 500 shown' : '');
    };
    $('#filter').oninput = draw;
    draw();
  };

  const draw = (job) => [timeline, matrix, memory, sizes, decisions].forEach((part) => part(job));
  $('#charts').hidden = false;
  if (jobs.length > 1) {
    $('#choose-job').hidden = false;
    $('#job').replaceChildren(...jobs.map((job, i) => new Option(job.title, i)));
    $('#job').onchange = () => draw(jobs[$('#job').value]);
  }
  draw(jobs[0]);
})();
