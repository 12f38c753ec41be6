"use strict";
const articles = [...document.querySelectorAll("article")];
const told = document.getElementById("told");
const verdicts = document.getElementById("verdicts");
function update() {
  const lines = [];
  for (const article of articles) {
    const chosen = article.querySelector("input[type=radio]:checked");
    article.className = chosen ? chosen.value : "";
    const note = article.querySelector("input[type=text]").value.trim();
    if (chosen) lines.push(JSON.stringify({
      file: article.dataset.file, row: Number(article.dataset.row), verdict: chosen.value, ...(note ? { note } : {}),
    }));
  }
  told.textContent = `${lines.length} of ${articles.length} judged`;
  verdicts.value = lines.map((line) => line + "\n").join("");
}
document.addEventListener("input", update);
update();
