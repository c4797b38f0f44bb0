// What a page of the console does without being loaded again: its numbers follow the server's, and it has keys.
"use strict";

const find = (css) => document.querySelector(css);
const all = (css) => [...document.querySelectorAll(css)];
const boxes = () => all("input[name='keys'][type='checkbox']");
const part = find("[data-part]");
const updates = find("#updates");
let isPaused = false;
let isAsking = false;

// The numbers. They rest while something is selected, while the page is hidden, and when the user says so.

function rests() {
    const isChosen = boxes().some((box) => box.checked) || String(getSelection()) || part.contains(document.activeElement);
    updates.classList.toggle("held", Boolean(isChosen));
    return isPaused || document.hidden || isChosen;
}

function show(html) {
    if (rests()) return;
    const place = all("[data-row]").indexOf(find("tr.at"));
    const isOpen = find("[data-part] .fold")?.open;
    part.innerHTML = html; // of this server, escaped there; the policy of the page runs no script in it
    if (isOpen === false) find("[data-part] .fold").open = false;
    if (place >= 0) all("[data-row]")[place]?.classList.add("at");
}

async function follow() {
    if (!part || isPaused || document.hidden || isAsking) return;
    isAsking = true;
    try {
        const answer = await fetch(document.body.dataset.from, { redirect: "error", signal: AbortSignal.timeout(10000) });
        updates.classList.toggle("lost", !answer.ok);
        if (answer.ok) show(await answer.text());
    } catch {
        updates.classList.add("lost"); // no answer, or the way to a login
    }
    isAsking = false;
}

function pause() {
    isPaused = !isPaused;
    updates.setAttribute("aria-pressed", String(isPaused));
    updates.textContent = isPaused ? "paused" : "live";
    follow();
}

// The rows of the page's table, and those that are selected.

function step(by) {
    const rows = all("[data-row]");
    const from = rows.findIndex((row) => row.classList.contains("at"));
    const to = Math.min(rows.length - 1, Math.max(0, from < 0 ? 0 : from + by));
    rows.forEach((row, place) => row.classList.toggle("at", place === to));
    rows[to]?.scrollIntoView({ block: "nearest" });
}

function select(chosen, to) {
    chosen.forEach((box) => { box.checked = to ?? !box.checked; });
    const n = boxes().filter((box) => box.checked).length;
    if (!find("#all")) return;
    find("#selected").textContent = n || "";
    find("#all").checked = n > 0 && n === boxes().length;
    if (n) find("input[name='scope'][value='selected']").checked = true;
    offer();
}

function offer() {
    const isAll = find("input[name='scope']:checked").value === "all" || boxes().some((box) => box.checked);
    all(".acts button[name='verb']").forEach((button) => { button.disabled = !isAll; });
}

const KEYS = {
    j: () => step(1),
    k: () => step(-1),
    x: () => select(all("tr.at input[name='keys']")),
    Enter: () => find("tr.at a")?.click(),
    "/": () => find("#filter")?.select(),
    n: () => find("a[rel='next']")?.click(),
    p: pause,
    u: () => find("a.brand").click(),
    "?": () => find("#help").showModal(),
    Escape: () => {
        select(boxes(), false);
        all("tr.at").forEach((row) => row.classList.remove("at"));
        document.activeElement?.blur();
    },
};

document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || find("#help").open || !Object.hasOwn(KEYS, key)) return;
    if (key !== "Escape" && target.closest("input:not([type='checkbox'], [type='radio']), select, textarea")) return;
    if (key === "Enter" && target.closest("a, button, input")) return;
    event.preventDefault();
    KEYS[key]();
});
document.addEventListener("change", ({ target }) => {
    if (target.id === "all") select(boxes(), target.checked);
    if (target.name === "keys") select([]);
    if (target.name === "scope") offer();
});
document.addEventListener("visibilitychange", follow);
setInterval(() => { find("#clock").textContent = ` It is ${new Date().toISOString().slice(11, 19)} now.`; }, 1000);
updates.addEventListener("click", pause);
find("#help-button").addEventListener("click", KEYS["?"]);
if (matchMedia("(max-width: 44rem)").matches) all(".fold").forEach((each) => { each.open = false; });
all("#help-button, #all").forEach((each) => { each.hidden = false; });
updates.hidden = !part;
select([]); // the browser keeps the boxes of a page to which its user goes back
setInterval(follow, Math.max(100, 1000 * document.body.dataset.every));
