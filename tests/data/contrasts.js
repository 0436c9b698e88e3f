// Of each text that shows, its contrast (WCAG 2), with a shade only where colours are opaque. A
// square alone is the mark of a legend.
() => {
  const rgb = (colour) => colour.match(/[\d.]+/g).map(Number);
  const opaque = (node) => (rgb(getComputedStyle(node).backgroundColor)[3] ?? 1) === 1;
  const back = (node) => (opaque(node) ? getComputedStyle(node).backgroundColor : back(node.parentElement));
  const ink = (node) => getComputedStyle(node)[node instanceof SVGElement ? 'fill' : 'color'];
  const light = (colour) => rgb(colour).slice(0, 3).map((each) => each / 255)
    .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0.05);
  const shows = (node) => node.checkVisibility() && (node.value ||
    [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim() && each.data !== '■'));
  return [...document.querySelectorAll('body *')].filter(shows).map((node) => {
    const lights = [light(ink(node)), light(back(node))];
    return [Math.max(...lights) / Math.min(...lights), node.outerHTML.slice(0, 80)];
  });
}
