"use strict";
const EVERY = 2000;  // milliseconds
const at = (id) => document.getElementById(id);
const number = (x) => x.toLocaleString("en-GB", {maximumSignificantDigits: 3});

function cell(text, side) {
  const made = document.createElement("td");
  made.textContent = text;
  if (side) made.className = side;
  return made;
}

function bar(done, all) {
  const made = document.createElement("td"), outer = document.createElement("div"), inner = document.createElement("i");
  outer.className = "bar";
  outer.setAttribute("role", "progressbar");
  outer.setAttribute("aria-valuemin", "0");
  outer.setAttribute("aria-valuemax", String(all));
  outer.setAttribute("aria-valuenow", String(done));
  outer.setAttribute("aria-label", "rounds done");
  inner.style.width = (100 * done / Math.max(all, 1)) + "%";
  outer.append(inner);
  made.append(outer);
  return made;
}

function site(row, run) {
  const made = document.createElement("tr");
  const name = cell(row.name + (row.here ? "" : " (not heard of for a minute)"));
  if (!row.here) name.className = "bad";
  const waits = row.waits ? `${row.waits}, for ${number(row.seconds)} s` : row.round === null ? "" : "nobody";
  made.append(name, cell(row.run || row.state ? `${row.run || run}: ${row.state}` : run), cell(row.round === null ? "–" : `${row.round} of ${row.rounds}`, "number"),
    bar(row.round || 0, row.rounds), cell(waits, row.waits ? "weak" : ""), cell(row.spent === null ? "–" : number(row.spent), "number"));
  return made;
}

function budget(row) {
  const made = document.createElement("tr"), left = row.epsilon_budget - row.epsilon;
  made.append(cell(row.dataset), cell(number(row.epsilon), "number"), cell(number(row.epsilon_budget), "number"),
    cell(number(Math.max(0, left)), "number"), cell(`δ = ${row.delta}, against '${row.adversary}', ${row.adjacency}`));
  return made;
}

function show(found) {
  at("error").textContent = found.error || "";
  if (found.error) return;
  at("state").textContent = found.state;
  at("job").textContent = found.job ? `(${found.job})` : "";
  at("sites").replaceChildren(...found.sites.map((row) => site(row, found.run)));
  at("budget-part").hidden = !found.budgets.length;
  at("budgets").replaceChildren(...found.budgets.map(budget));
  at("terms").textContent = found.terms;
  at("verdict").textContent = found.verdict;
  at("paragraph").replaceChildren(...found.paragraph.split("\n\n").map((text) => {
    const made = document.createElement("p");
    made.textContent = text;
    return made;
  }));
  at("digest").textContent = found.digest;
}

let looks = 0;
async function look() {
  try {
    show(await (await fetch("answer")).json());
  } catch (failure) {
    at("error").textContent = "The watch has stopped; start it again.";
    return;
  }
  document.body.dataset.settled = String(++looks);
  setTimeout(look, EVERY);
}
look();
