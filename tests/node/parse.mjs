// Reads a JSON list of Mermaid texts from standard input; writes for each what Mermaid's own parser made of it:
// {"type", "nodes": {id: label}, "edges": [[from, to]]} or {"error"}.
import { JSDOM } from "jsdom";

// Mermaid cleans labels with DOMPurify, which needs a document when it is loaded.
const { window } = new JSDOM("<!DOCTYPE html><body></body>");
globalThis.window = window;
globalThis.document = window.document;

const { default: mermaid } = await import("mermaid");
mermaid.initialize({ startOnLoad: false, securityLevel: "strict" });

let input = "";
for await (const chunk of process.stdin) input += chunk;

const answers = [];
for (const text of JSON.parse(input)) {
  try {
    const { diagramType } = await mermaid.parse(text);
    const { db } = await mermaid.mermaidAPI.getDiagramFromText(text);
    const data = db.getData();
    answers.push({
      type: diagramType,
      nodes: Object.fromEntries(data.nodes.map((node) => [node.id, node.label])),
      edges: data.edges.map((edge) => [edge.start, edge.end]),
    });
  } catch (error) {
    answers.push({ error: String(error.message ?? error) });
  }
}
console.log(JSON.stringify(answers));
