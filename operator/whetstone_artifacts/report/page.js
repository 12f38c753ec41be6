"use strict";
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), table = head.closest("table"), body = table.tBodies[0];
    const column = [...head.parentNode.children].indexOf(head);
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.children[column].dataset.sort ?? row.children[column].textContent.trim();
    const compare = (a, b) => {
      const x = key(a), y = key(b), m = Number(x), n = Number(y);
      const order = x !== "" && y !== "" && !isNaN(m) && !isNaN(n) ? m - n : x.localeCompare(y);
      return up ? order : -order;
    };
    [...body.rows].sort(compare).forEach((row) => body.append(row));
  });
}
for (const button of document.querySelectorAll("[data-open]")) {
  button.addEventListener("click", () => {
    const state = button.dataset.open;
    for (const trial of document.querySelectorAll("details.trial")) {
      trial.open = state === "all" || (state !== "none" && trial.classList.contains(state));
    }
  });
}
const follow = () => {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", follow);
for (const link of document.querySelectorAll('a[href^="#"]')) link.addEventListener("click", () => setTimeout(follow));
follow();
