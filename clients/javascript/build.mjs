// Bundle the packages into their dist folders and print their sizes; `node build.mjs examples`: bundle the example pages.

import { build, transform } from "esbuild";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const css = {
  name: "css",
  setup({ onLoad }) {
    onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { code } = await transform(readFileSync(path, "utf8"), { loader: "css", minify: true });
      return { contents: code, loader: "text" };
    });
  },
};
const options = { bundle: true, minify: true, format: "esm", target: "es2022", logLevel: "warning", plugins: [css] };
const packages = {
  "client/dist/index.js": ["client/src/index.ts"],
  "instantsearch/dist/index.js": ["instantsearch/src/index.ts", ["fullrank-client"]],
  "element/dist/fullrank-search.js": ["element/src/index.ts"],
};
const pages = {
  "../../examples/shop-page/build/main.js": ["../../examples/shop-page/main.js"],
  "../../tests/javascript/build/react.js": ["../../tests/javascript/react.jsx"],
  "../../tests/javascript/build/autocomplete.js": ["../../tests/javascript/autocomplete.js"],
  "../../tests/javascript/build/more.js": ["../../tests/javascript/more.js"],
};
const isExamples = process.argv[2] === "examples";
for (const [outfile, [entry, external]] of Object.entries(isExamples ? pages : packages)) {
  await build({
    ...options, entryPoints: [entry], outfile, external,
    // Pages are outside of the folder that has the packages.
    nodePaths: ["node_modules"], jsx: "automatic", define: { "process.env.NODE_ENV": '"production"' },
  });
  if (!isExamples) console.log(`${outfile}: ${gzipSync(readFileSync(outfile)).length.toLocaleString("en")} bytes gzipped`);
}
