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
const options = {
  bundle: true, minify: true, target: "es2022", logLevel: "warning", plugins: [css], jsx: "automatic",
  define: { "process.env.NODE_ENV": '"production"' },
  // Pages are outside of the folder that has the packages.
  nodePaths: ["node_modules"],
};
const external = ["fullrank-client"];
const banner = { js: "/* fullrank-search 0.1.0, built from clients/javascript */" };
const packages = [
  { entryPoints: ["client/src/index.ts"], outfile: "client/dist/index.js", format: "esm" },
  { entryPoints: ["instantsearch/src/index.ts"], outfile: "instantsearch/dist/index.js", format: "esm", external },
  { entryPoints: ["element/src/index.ts"], outfile: "element/dist/index.js", format: "esm", external },
  // For a script tag: it knows where it was loaded from.
  { entryPoints: ["element/src/index.ts"], outfile: "element/dist/fullrank-search.js", format: "iife", banner },
];
const pages = [
  { entryPoints: ["../../examples/shop-page/main.js"], outdir: "../../examples/shop-page/build", format: "esm" },
  {
    entryPoints: ["react.jsx", "autocomplete.js", "geo.js", "more.js"].map((name) => `../../tests/javascript/${name}`),
    outdir: "../../tests/javascript/build", format: "esm",
  },
];
const isExamples = process.argv[2] === "examples";
for (const one of isExamples ? pages : packages) {
  await build({ ...options, ...one });
  const { outfile } = one;
  if (outfile) console.log(`${outfile}: ${gzipSync(readFileSync(outfile)).length.toLocaleString("en")} bytes gzipped`);
}
