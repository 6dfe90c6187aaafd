"use strict";
// Sliders have few places, so that every number on the page is one that the command prints, too.
const PLACES = {
  nodes: [1, 2, 5, 10, 20, 50, 100, 1000],
  records: [100, 200, 500, 1000, 2000, 5000, 10000, 100000],
  features: [5, 10, 20, 50, 100, 200, 500, 1000, 5000],
  epsilon: [0.1, 0.2, 0.5, 1, 2, 5, 10],
  delta: [1e-4, 1e-5, 1e-6, 1e-8],
  max_bytes: [1e5, 1e6, 1e7, 1e8, 1e9, 0],
};
const START = {nodes: 20, records: 1000, features: 50, epsilon: 1, delta: 1e-5, max_bytes: 0};
const TRUST = [["nobody", "nobody"], ["1", "all but one node"], ["majority", "a majority"], ["centre", "a center"]];
const known = JSON.parse(document.getElementById("known").textContent);
const at = (id) => document.getElementById(id);
const number = (x) => x.toLocaleString("en-GB", {maximumSignificantDigits: 3});
const places = Object.assign({}, PLACES, known.places || {});

function bytes(x) {
  const units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (x >= 1000 && unit < units.length - 1) { x /= 1000; unit += 1; }
  return number(x) + " " + units[unit];
}

function asked() {
  const fields = {};
  for (const name of Object.keys(places)) fields[name] = String(places[name][Number(at(name).value)]);
  fields.trust = at("trust").value;
  return fields;
}

function told(fields) {
  for (const name of Object.keys(places)) {
    const value = Number(fields[name]);
    const text = name === "max_bytes" ? (value ? bytes(value) : "any") : name === "delta" ? value.toExponential(0) : number(value);
    at(name + "-is").value = text;
    at(name).setAttribute("aria-valuetext", text);
  }
}

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw(found) {
  const svg = at("curve"), narrow = window.innerWidth <= 760;  // letters are larger there, as the style says
  const [left, right, top, bottom, below] = narrow ? [64, 616, 14, 190, 28] : [46, 630, 12, 212, 18];
  const most = Math.max(0.02, ...found.curve.map((p) => Math.min(p[3], 0.5)));
  const ends = [Math.log(found.curve[0][0]), Math.log(found.curve[found.curve.length - 1][0])];
  const x = (e) => left + (Math.log(e) - ends[0]) / (ends[1] - ends[0]) * (right - left);
  const y = (l) => bottom - Math.min(l, most) / most * (bottom - top);
  svg.replaceChildren();
  for (const share of [0, 0.5, 1]) {
    svg.append(element("line", {class: "grid", x1: left, x2: right, y1: y(share * most), y2: y(share * most)}));
    svg.append(element("text", {x: left - 6, y: y(share * most) + 4, "text-anchor": "end"}, number(100 * share * most)));
  }
  for (const [e] of found.curve) svg.append(element("text", {x: x(e), y: bottom + below, "text-anchor": "middle"}, String(e)));
  svg.append(element("text", {x: (left + right) / 2, y: bottom + 2 * below, "text-anchor": "middle"}, "ε"));
  const up = found.curve.map((p) => `${x(p[0])},${y(p[3])}`), down = found.curve.map((p) => `${x(p[0])},${y(p[2])}`).reverse();
  svg.append(element("polygon", {class: "band", points: up.concat(down).join(" ")}));
  svg.append(element("polyline", {class: "curve", points: found.curve.map((p) => `${x(p[0])},${y(p[1])}`).join(" ")}));
  svg.append(element("circle", {class: "here", cx: x(found.epsilon), cy: y(found.loss), r: 5}));
}

function show(found) {
  at("error").textContent = found.error || "";
  if (found.error) return;
  at("loss").textContent = number(100 * found.loss);
  at("range").textContent = `${number(100 * found.loss_low)} to ${number(100 * found.loss_high)}`;
  at("notices").textContent = number(found.notices);
  at("sent").textContent = bytes(found.bytes);
  at("messages").textContent = number(found.messages);
  at("rounds").textContent = found.rounds.toLocaleString("en-GB");
  at("sigma").textContent = number(found.sigma);
  at("guarantee").textContent = `Every record has (ε = ${found.epsilon}, δ = ${found.delta.toExponential(0)}) against ` +
    `'${found.adversary}', who sees ${found.sees} (${found.adjacency}).`;
  at("claimed").textContent = String(found.paper.claimed);
  at("true").textContent = "ε = " + number(found.paper.true);
  at("offers").replaceChildren(...found.trust.map((offer) => {
    const row = document.createElement("tr");
    for (const [text, side] of [[offer.trust, ""], [offer.words, ""], [number(100 * offer.loss), "number"]]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      if (side) cell.className = side;
      row.append(cell);
    }
    return row;
  }));
  at("reasons").replaceChildren(...found.reasons.map((reason) => {
    const item = document.createElement("li");
    item.textContent = reason;
    return item;
  }));
  at("command").textContent = found.command;
  at("python").textContent = found.python;
  draw(found);
}

let latest = 0;
async function ask() {
  const fields = asked(), mine = ++latest;
  told(fields);
  document.body.dataset.settled = "";
  let found;
  if (known.answers) {
    const key = Object.keys(places).map((name) => at(name).value).concat(fields.trust).join(" ");
    found = known.answers[key] || {error: "This page knows some cases only; `sottovoce plan --open` knows them all."};
  } else {
    try {
      found = await (await fetch("answer?" + new URLSearchParams(fields))).json();
    } catch (failure) {
      found = {error: "The planner has stopped; start `sottovoce plan --open` again."};
    }
  }
  if (mine !== latest) return;  // a later move is on its way
  show(found);
  document.body.dataset.settled = String(mine);
}

for (const name of Object.keys(places)) {
  at(name).max = String(places[name].length - 1);
  at(name).value = String(Math.max(0, places[name].indexOf((known.start || START)[name])));
  at(name).addEventListener("input", ask);
}
for (const [name, words] of TRUST.filter((pair) => !known.trust || known.trust.includes(pair[0]))) {
  const option = document.createElement("option");
  option.value = name;
  option.textContent = words;
  at("trust").append(option);
}
at("trust").addEventListener("input", ask);
at("controls").addEventListener("submit", (event) => event.preventDefault());
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", () => {
    navigator.clipboard.writeText(at(button.dataset.copy).textContent).then(() => {
      const before = button.textContent;
      button.textContent = "copied";
      setTimeout(() => { button.textContent = before; }, 1200);
    });
  });
}
ask();
