// A minimal TypeBox, for plugins that do not bundle it: it creates JSON Schema. The markers are those of the real
// one, so that schemas of both can be mixed.

const KIND = Symbol.for("TypeBox.Kind");
const OPTIONAL = Symbol.for("TypeBox.Optional");

const schema = (kind, parts) => ({ [KIND]: kind, ...parts });
const isOptional = (each) => each?.[OPTIONAL] !== undefined || each?.["~optional"] !== undefined;

function object(properties, options = {}) {
  const required = Object.keys(properties).filter((key) => !isOptional(properties[key]));
  return schema("Object", { type: "object", properties, ...(required.length > 0 && { required }), ...options });
}

function optional(inner) {
  const marked = { ...inner, [OPTIONAL]: "Optional" };
  // Newer versions use another marker.
  return Object.defineProperty(marked, "~optional", { value: true, enumerable: false });
}

function partial(inner, options = {}) {
  const properties = Object.fromEntries(Object.entries(inner.properties).map(([key, each]) => [key, optional(each)]));
  return object(properties, options);
}

function chosen(inner, keys, isIn) {
  const kept = Object.entries(inner.properties).filter(([key]) => keys.includes(key) === isIn);
  return object(Object.fromEntries(kept));
}

export const Type = {
  Any: (options) => schema("Any", { ...options }),
  Unknown: (options) => schema("Unknown", { ...options }),
  Null: (options) => schema("Null", { type: "null", ...options }),
  String: (options) => schema("String", { type: "string", ...options }),
  Number: (options) => schema("Number", { type: "number", ...options }),
  Integer: (options) => schema("Integer", { type: "integer", ...options }),
  Boolean: (options) => schema("Boolean", { type: "boolean", ...options }),
  Literal: (value, options) => schema("Literal", { const: value, type: typeof value, ...options }),
  Array: (items, options) => schema("Array", { type: "array", items, ...options }),
  Tuple: (items, options) =>
    schema("Tuple", { type: "array", items, additionalItems: false, minItems: items.length, maxItems: items.length, ...options }),
  Union: (anyOf, options) => schema("Union", { anyOf, ...options }),
  Intersect: (allOf, options) => schema("Intersect", { type: "object", allOf, ...options }),
  Composite: (parts, options) => object(Object.assign({}, ...parts.map((each) => each.properties)), options),
  Enum: (values, options) => schema("Union", { anyOf: enumValues(values).map((value) => Type.Literal(value)), ...options }),
  Record: (_key, value, options) => schema("Record", { type: "object", additionalProperties: value, ...options }),
  Unsafe: (parts = {}) => schema(parts[KIND] ?? "Unsafe", parts),
  Object: object,
  Optional: optional,
  Partial: partial,
  Pick: (inner, keys) => chosen(inner, keys, true),
  Omit: (inner, keys) => chosen(inner, keys, false),
};

// A numeric TypeScript enum also maps its values to names, which are skipped; a list is used as it is.
function enumValues(values) {
  if (Array.isArray(values)) return values;
  const names = Object.keys(values).filter((key) => Number.isNaN(Number(key)));
  return [...new Set(names.map((name) => values[name]))];
}

export { KIND as Kind, OPTIONAL as OptionalKind };
export default Type;
