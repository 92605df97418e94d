import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

// The version of the workspace, so that the gateway and its page always have the same.
const cargo = readFileSync(new URL("../Cargo.toml", import.meta.url), "utf8");
const version = /\[workspace\.package\][^[]*?\nversion = "([^"]+)"/.exec(cargo)?.[1] ?? "unknown";

export default defineConfig({
  // Relative addresses, so that the page works below any path prefix.
  base: "./",
  define: { __VERSION__: JSON.stringify(version) },
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    target: "es2022",
    outDir: "dist",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    reportCompressedSize: false,
    rollupOptions: { output: { entryFileNames: "assets/[name]-[hash].js", chunkFileNames: "assets/[name]-[hash].js" } },
  },
  test: { include: ["tests/unit/**/*.test.ts"] },
} as Parameters<typeof defineConfig>[0]);
