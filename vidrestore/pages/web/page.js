"use strict";
const pictures = JSON.parse(document.getElementById("pictures").textContent);
const images = [...document.querySelectorAll("img[data-picture]")];
for (const image of images) image.src = pictures[image.dataset.picture];
for (const slider of document.querySelectorAll(".slider")) {
  const input = slider.querySelector("input");
  const move = () => slider.style.setProperty("--at", `${input.value}%`);
  input.addEventListener("input", move);
  move();
}
Promise.allSettled(images.map((image) => image.decode())).then((results) => {
  document.documentElement.dataset.pictures = results.filter((result) => result.status === "fulfilled").length;
});
