//! Edits the file atomically, one value at a time; everything else keeps its exact bytes.

use std::{
    fmt,
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind, Write},
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};
use tempfile::NamedTempFile;

use crate::Error;

/// The file's name.
pub const NAME: &str = "auth-profiles.json";

/// Fields of an object in order, each with its JSON text. The text may be a secret, so `Debug` omits it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Fields(Vec<(String, String)>);

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;

        impl<'de> Visitor<'de> for Texts {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    fields.push((name, value.get().to_owned()));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Texts)
    }
}

impl Fields {
    /// Returns all fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Returns the text of a field. Of duplicates the last one counts, as in common JSON parsers.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().filter(|(known, _)| *known == name).last().map(|(_, text)| text)
    }

    /// Returns the fields of a nested object; empty if it is missing.
    pub fn object(&self, name: &str, path: &Path) -> Result<Self, Error> {
        let Some(text) = self.get(name) else { return Ok(Self::default()) };
        match serde_json::from_str(text) {
            Ok(fields) => Ok(fields),
            Err(_) => Err(Error::Unusable(format!("\"{name}\" in {} is not an object; {REMEDY}", path.display()))),
        }
    }

    /// Sets a field to a value, indented for this depth.
    pub fn set(&mut self, name: &str, value: &Value, depth: usize) {
        let text = format!("{value:#}").replace('\n', &format!("\n{}", "  ".repeat(depth)));
        self.insert(name, text);
    }

    /// Sets a field to an object, indented for this depth.
    pub fn put(&mut self, name: &str, fields: &Self, depth: usize) {
        self.insert(name, fields.text(depth));
    }

    /// Removes a field. Returns true if it existed.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|(known, _)| known != name);
        self.0.len() < before
    }

    fn insert(&mut self, name: &str, text: String) {
        match self.0.iter_mut().rev().find(|(known, _)| known == name) {
            Some((_, old)) => *old = text,
            None => self.0.push((name.to_owned(), text)),
        }
    }

    /// Returns the JSON text, indented for this depth.
    fn text(&self, depth: usize) -> String {
        if self.0.is_empty() {
            return "{}".to_owned();
        }
        let indent = "  ".repeat(depth);
        let line = |(name, text): &(String, String)| format!("\n{indent}  {}: {text}", json!(name));
        let lines: Vec<_> = self.0.iter().map(line).collect();
        format!("{{{}\n{indent}}}", lines.join(","))
    }
}

const REMEDY: &str = "the file is left as it is: correct it, or move it away and add the keys again with: homard models auth \
                       add PROVIDER";

/// Reads the file; `None` if it does not exist.
pub fn read(path: &Path) -> Result<Option<Fields>, Error> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::Read { path: path.to_owned(), error }),
    };
    match serde_json::from_str(text.strip_prefix('\u{feff}').unwrap_or(&text)) {
        Ok(fields) => Ok(Some(fields)),
        // The parser's message could quote the content.
        Err(error) => Err(Error::Unusable(format!(
            "{} is not a JSON object (line {}, column {}); {REMEDY}",
            path.display(),
            error.line(),
            error.column()
        ))),
    }
}

/// Edits the file; the change is on disk when this returns. An unreadable file is not touched.
pub fn edit<T, E: From<Error>>(path: &Path, change: impl FnOnce(&mut Fields) -> Result<T, E>) -> Result<T, E> {
    let failed = |error: io::Error| Error::Write { path: path.to_owned(), error };
    // A symlink is resolved, so that its target is replaced and not the link.
    let canonical = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = canonical.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    // Locked until the end, against other processes.
    let folder_lock = File::open(folder).map_err(failed)?;
    folder_lock.lock().map_err(failed)?;
    let previous = read(&canonical)?;
    let new = || Fields(vec![("version".to_owned(), "1".to_owned()), ("profiles".to_owned(), "{}".to_owned())]);
    let mut fields = previous.clone().unwrap_or_else(new);
    let changed = change(&mut fields)?;
    if previous.as_ref() == Some(&fields) {
        return Ok(changed);
    }
    // Temporary files are created readable by the owner only, and the result stays so.
    let mut file = NamedTempFile::new_in(folder).map_err(failed)?;
    let text = format!("{}\n", fields.text(0));
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
    file.persist(&canonical).map_err(|error| failed(error.error))?;
    folder_lock.sync_all().map_err(failed)?;
    Ok(changed)
}

/// Returns true if a file contains a credential, or cannot be read and therefore may.
pub fn has_profiles(path: &Path) -> bool {
    match read(path) {
        Ok(None) => false,
        Ok(Some(fields)) => fields.object("profiles", path).map_or(true, |profiles| profiles.iter().next().is_some()),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agents/main/agent").join(NAME);
        (folder, path)
    }

    fn add(fields: &mut Fields) -> Result<(), Error> {
        let mut profiles = fields.object("profiles", Path::new("p"))?;
        profiles.set("openai:default", &json!({"type": "api_key", "key": "k"}), 2);
        fields.put("profiles", &profiles, 1);
        Ok(())
    }

    #[test]
    fn a_new_file_is_for_its_owner_only() {
        let (_folder, path) = folder();
        edit(&path, add).unwrap();
        let expected = "{\n  \"version\": 1,\n  \"profiles\": {\n    \"openai:default\": {\n      \"type\": \"api_key\",\n      \
                        \"key\": \"k\"\n    }\n  }\n}\n";
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn unchanged_parts_stay_byte_for_byte() {
        let (_folder, path) = folder();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = "{\n  \"version\": 1,\n  \"profiles\": {\n    \"a:b\": {\"n\":1.50e3,   \"big\": 123456789012345678901234567890}\n  },\n  \
                    \"later\": [ 1.0, {} ]\n}\n";
        fs::write(&path, text).unwrap();
        edit(&path, add).unwrap();
        let changed = fs::read_to_string(&path).unwrap();
        edit(&path, |fields| {
            let mut profiles = fields.object("profiles", &path)?;
            assert!(profiles.remove("openai:default") && !profiles.remove("nobody"));
            fields.put("profiles", &profiles, 1);
            Ok::<_, Error>(())
        })
        .unwrap();
        assert_ne!(changed, text);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_never_overwritten() {
        let (_folder, path) = folder();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        for broken in ["{\"profiles\": {\"a\": \"sk-secret\"}", "[\"sk-secret\"]", "", "{\"profiles\": \"sk-secret\"}"]
        {
            fs::write(&path, broken).unwrap();
            let error = edit(&path, add).unwrap_err().to_string();
            assert!(error.contains(NAME) || error.contains(" in p "), "{error}");
            assert!(error.contains("homard models auth") && !error.contains("sk-secret"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), broken);
        }
    }

    #[test]
    fn a_symlink_stays_a_symlink() {
        let (folder, path) = folder();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let target = folder.path().join("real.json");
        fs::write(&target, "{}").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        edit(&path, add).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink() && has_profiles(&target));
    }
}
