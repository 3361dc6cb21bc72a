// A box that scrolls sideways must be reachable with the keyboard, else its right half is for mouse users only.
for (const event of ["load", "resize"]) addEventListener(event, () => {
  for (const box of document.querySelectorAll("main table, main pre, main div.math, main .cell_output .output")) {
    if (box.scrollWidth > box.clientWidth && !box.hasAttribute("tabindex")) box.tabIndex = 0;
  }
});
