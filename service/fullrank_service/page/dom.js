// Elements. Texts become text nodes: nothing of a document is read as markup.

// Return an element with attributes and properties, which may be left out, and children.
export function element(name, ...children) {
  const made = document.createElement(name);
  const given = children[0]?.constructor === Object ? children.shift() : {};
  for (const [key, value] of Object.entries(given)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}
