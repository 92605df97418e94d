//! The bill of materials: every crate that is part of the binary, in CycloneDX's JSON format.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Release, metadata};
use crate::shell;

/// Writes the bill of materials.
pub(super) fn write(release: &Release) -> Result<()> {
    let document = document(&metadata()?, &checksums(&fs::read_to_string(shell::root().join("Cargo.lock"))?))?;
    let path = release.out.join(format!("homard-{}.cdx.json", release.version));
    fs::write(&path, format!("{document:#}\n")).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the checksums in Cargo.lock by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let value = |name: &str| {
            let prefix = format!("{name} = \"");
            package.lines().find_map(|line| line.strip_prefix(prefix.as_str())?.strip_suffix('"')).map(str::to_owned)
        };
        if let (Some(name), Some(version), Some(checksum)) = (value("name"), value("version"), value("checksum")) {
            found.insert((name, version), checksum);
        }
    }
    found
}

fn document(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata has no resolution")?;
    let by_id: BTreeMap<_, _> =
        packages.iter().filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes: BTreeMap<_, _> = nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let root = packages.iter().find(|package| package["name"] == "homard").context("there is no package homard")?;
    let root_id = root["id"].as_str().unwrap_or_default();
    let (mut reached, mut open) = (BTreeSet::new(), vec![root_id]);
    let mut graph = Vec::new();
    while let Some(id) = open.pop() {
        if !reached.insert(id) {
            continue;
        }
        let dependencies: Vec<_> = nodes.get(id).map(|node| linked(node)).unwrap_or_default();
        let names: Vec<_> = dependencies.iter().filter_map(|id| by_id.get(id)).map(|package| url(package)).collect();
        graph.extend(by_id.get(id).map(|package| json!({"ref": url(package), "dependsOn": names})));
        open.extend(dependencies);
    }
    let parts = reached.iter().filter(|id| **id != root_id).filter_map(|id| by_id.get(id));
    let components: Vec<_> = parts.map(|package| component(package, checksums)).collect();
    let mut own = component(root, checksums);
    own["type"] = "application".into();
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": own},
        "components": components, "dependencies": graph,
    }))
}

/// Returns the packages that are linked: neither build scripts nor tests.
fn linked(node: &Value) -> Vec<&str> {
    let dependencies = node["deps"].as_array().into_iter().flatten();
    let is_linked = |dependency: &&Value| {
        dependency["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
    };
    dependencies.filter(is_linked).filter_map(|dependency| dependency["pkg"].as_str()).collect()
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let text = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
    let mut component = json!({
        "type": "library", "bom-ref": url(package), "name": text("name"), "version": text("version"), "purl": url(package),
    });
    if let Some(license) = package["license"].as_str() {
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if let Some(checksum) = checksums.get(&(text("name"), text("version"))) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

fn url(package: &Value) -> String {
    let text = |name: &str| package[name].as_str().unwrap_or_default();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_crates_are_listed_with_license_and_checksum() {
        let metadata = json!({
            "packages": [
                {"id": "h", "name": "homard", "version": "1.0.0"},
                {"id": "a", "name": "aa", "version": "0.1.0", "license": "MIT/Apache-2.0"},
                {"id": "b", "name": "bb", "version": "2.0.0"},
            ],
            "resolve": {"nodes": [
                {"id": "h", "deps": [{"pkg": "a", "dep_kinds": [{"kind": null}]}, {"pkg": "b", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "a", "deps": []}, {"id": "b", "deps": []},
            ]},
        });
        let checksums = checksums("[[package]]\nname = \"aa\"\nversion = \"0.1.0\"\nchecksum = \"c0ffee\"\n");
        let found = document(&metadata, &checksums).unwrap();
        let expected = json!([{
            "type": "library", "bom-ref": "pkg:cargo/aa@0.1.0", "name": "aa", "version": "0.1.0",
            "purl": "pkg:cargo/aa@0.1.0", "licenses": [{"expression": "MIT OR Apache-2.0"}],
            "hashes": [{"alg": "SHA-256", "content": "c0ffee"}],
        }]);
        assert_eq!(found["components"], expected);
        assert_eq!(found["metadata"]["component"]["purl"], "pkg:cargo/homard@1.0.0");
    }
}
