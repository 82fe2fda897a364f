"use strict";

const all = (selector, from = document) => [...from.querySelectorAll(selector)];

/* Tabs: one panel at a time, arrow keys move along, and the address names the panel. */
const tabs = all("[role=tab]");

function open(tab) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", chosen);
    other.tabIndex = chosen ? 0 : -1;
    const panel = document.getElementById(other.getAttribute("aria-controls"));
    panel.hidden = !chosen;
    const picture = panel.querySelector(".scroll:has(svg)");
    if (chosen && picture && !picture.scrollLeft) picture.scrollLeft = (picture.scrollWidth - picture.clientWidth) / 2;
  }
  const bar = tab.parentElement;
  bar.scrollLeft = tab.offsetLeft - (bar.clientWidth - tab.offsetWidth) / 2;
  history.replaceState(null, "", "#" + tab.textContent);
}

tabs.forEach((tab, at) => {
  tab.addEventListener("click", () => open(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = event.key === "Home" ? tabs[0] : event.key === "End" ? tabs.at(-1) : tabs.at((at + step) % tabs.length);
    if (!step && event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    next.focus();
    open(next);
  });
});

/* A machine's panel: a chosen state narrows the rows and brings out its arrows. */
function machine(panel) {
  const choice = panel.querySelector(".state-choice");
  if (!choice) return;
  const picture = panel.querySelector("svg.machine");
  const states = all(".state", picture);
  const rows = all(".rows tbody tr", panel);
  const never = panel.querySelector(".never-only");
  const ends = new Set(states.filter((s) => s.classList.contains("terminal")).map((s) => s.dataset.state));

  function touches(row, state) {
    const { source, target } = row.dataset;
    return source === state || target === state || (source === "any but terminal" && !ends.has(state));
  }

  function narrow(state) {
    choice.value = state;
    for (const box of states) box.setAttribute("aria-pressed", box.dataset.state === state);
    picture.classList.toggle("chosen", state !== "");
    for (const wire of all(".wire", picture))
      wire.classList.toggle("near", state !== "" && (wire.dataset.from === state || wire.dataset.to === state));
    let shown = 0;
    for (const row of rows) {
      row.hidden = (state && !touches(row, state)) || (never && never.checked && row.dataset.taken !== "0");
      shown += !row.hidden;
    }
    panel.querySelector(".shown").value = `${shown} of ${rows.length} rows`;
  }

  const toggle = (box) => narrow(box.getAttribute("aria-pressed") === "true" ? "" : box.dataset.state);
  for (const box of states) {
    box.addEventListener("click", () => toggle(box));
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle(box);
    });
  }
  choice.addEventListener("change", () => narrow(choice.value));
  if (never) never.addEventListener("change", () => narrow(choice.value));
  narrow("");
}

/* Timelines: a list of requests, and for the chosen one its lanes and its steps. */
function element(name, text = "", look = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (look) made.className = look;
  return made;
}

function strip(lane, kinds, first, last) {
  const box = element("div", "", "strip");
  const place = (tick) => (100 * (tick - first)) / (last - first + 1);
  const moves = lane.steps.filter((step, at) => at === 0 || step[2] !== lane.steps[at - 1][2]);
  moves.forEach(([tick, , state], at) => {
    const until = at + 1 < moves.length ? moves[at + 1][0] : kinds[state] === "terminal" ? tick + 1 : last + 1;
    const span = element("span", state);
    span.title = `${state} (${kinds[state]}), ticks ${tick} to ${until}`;
    span.style.cssText = `left:${place(tick)}%;width:${place(until) - place(tick)}%;background:var(--${kinds[state]})`;
    box.append(span);
  });
  return box;
}

function table(request) {
  const steps = request.lanes.flatMap((lane) => lane.steps.map((step) => [...step, lane.title.split(":")[0]]));
  steps.sort((a, b) => a[3] - b[3]);
  const made = element("table");
  const head = made.createTHead().insertRow();
  for (const name of ["tick", "who", "event", "leads to", "detail"]) head.append(element("th", name));
  const body = made.createTBody();
  for (const [tick, event, state, , detail, who] of steps) {
    const row = body.insertRow();
    for (const text of [tick, who, event, state, detail]) row.insertCell().textContent = text;
  }
  const scroll = element("div", "", "scroll");
  scroll.tabIndex = 0;
  scroll.append(made);
  return scroll;
}

function legend(kinds) {
  const made = element("p", "", "legend");
  for (const kind of kinds) {
    const mark = element("i");
    mark.style.background = `var(--${kind})`;
    const item = element("span", kind);
    item.prepend(mark);
    made.append(item);
  }
  return made;
}

function timelines(panel) {
  const data = JSON.parse(document.getElementById("timeline-data").textContent);
  const list = panel.querySelector(".requests");
  const story = panel.querySelector(".story");
  const filter = panel.querySelector(".request-filter");

  function show(request) {
    const ticks = request.lanes.flatMap((lane) => lane.steps.map((step) => step[0]));
    const first = Math.min(...ticks);
    const last = Math.max(...ticks);
    const parts = [element("h3", request.title)];
    for (const lane of request.lanes) {
      const box = element("div", "", "lane");
      box.append(element("b", lane.title), strip(lane, data.kinds[lane.machine], first, last));
      parts.push(box);
    }
    const axis = element("div", "", "axis");
    axis.append(element("span", `tick ${first}`), element("span", `tick ${last}`));
    const kinds = ["resting", "waiting", "passing", "visit", "lent", "flying", "terminal"];
    story.replaceChildren(...parts, axis, legend(kinds), element("h3", "Steps"), table(request));
    for (const button of all("button", list)) button.setAttribute("aria-current", button.request === request);
  }

  function fill() {
    const wanted = data.requests.filter((request) => request.title.includes(filter.value.trim()));
    list.replaceChildren(
      ...wanted.map((request) => {
        const button = element("button", request.title);
        button.request = request;
        button.append(element("small", request.summary));
        button.addEventListener("click", () => show(request));
        const item = element("li");
        item.append(button);
        return item;
      }),
    );
    panel.querySelector(".found").value = `${wanted.length} of ${data.requests.length} requests`;
  }

  filter.addEventListener("input", fill);
  fill();
  const length = (request) => request.lanes.reduce((sum, lane) => sum + lane.steps.length, 0);
  const longest = data.requests.reduce((best, other) => (best && length(best) >= length(other) ? best : other), null);
  if (longest) show(longest);
}

for (const panel of all("[role=tabpanel]")) machine(panel);
const times = document.getElementById("panel-timelines");
if (times) timelines(times);
open(tabs.find((tab) => "#" + tab.textContent === location.hash) || tabs[0]);
