//! The Debian package: an `ar` archive of two tarballs, written here, so that no Debian tools are needed.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{Release, install, installed_size, tar};
use crate::shell;

/// Scripts that Debian runs at the installation, below `xtask/packaging/debian`.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the package and returns its path.
pub(super) fn package(release: &Release) -> Result<PathBuf> {
    let folder = release.out.join("debian");
    let control = folder.join("control");
    install(&control.join("control"), description(release)?.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        let text = fs::read(shell::root().join("xtask/packaging/debian").join(script))?;
        install(&control.join(script), &text, 0o755)?;
    }
    install(&control.join("md5sums"), &checksums(&release.tree)?, 0o644)?;
    let (control_archive, data) = (folder.join("control.tar.gz"), folder.join("data.tar.gz"));
    tar(&control_archive, &control, &[])?;
    tar(&data, &release.tree, &[])?;
    let path = release.out.join(format!("homard_{}_{}.deb", release.version, release.architecture));
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", fs::read(control_archive)?),
        ("data.tar.gz", fs::read(data)?),
    ];
    fs::write(&path, archive(&members)).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    fs::remove_dir_all(folder)?;
    Ok(path)
}

fn description(release: &Release) -> Result<String> {
    let depends = release.glibc.map(|version| format!("libc6 (>= {version}), ")).unwrap_or_default();
    let size = installed_size(&release.tree)?.div_ceil(1024);
    Ok(format!(
        "Package: homard\n\
         Version: {}\n\
         Architecture: {}\n\
         Maintainer: Homard maintainers <homard@localhost>\n\
         Installed-Size: {size}\n\
         Depends: {depends}ca-certificates\n\
         Recommends: bubblewrap\n\
         Section: net\n\
         Priority: optional\n\
         Description: Self-hosted AI agent gateway, compatible with OpenClaw\n \
         One binary: a gateway for chat platforms and clients, and a command line.\n",
        release.version, release.architecture
    ))
}

/// Returns the checksums of all files, in Debian's format.
fn checksums(tree: &Path) -> Result<Vec<u8>> {
    let mut command = Command::new("sh");
    command.args(["-c", "find . -type f -printf '%P\\0' | sort -z | xargs -0 md5sum"]).current_dir(tree);
    shell::output(&mut command)
}

/// Writes an archive in the common format of `ar`.
fn archive(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, content) in members {
        bytes
            .extend(format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, "100644", content.len()).into_bytes());
        bytes.extend(content);
        // Members begin at even positions.
        if content.len() % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_an_archive_begin_at_even_positions() {
        let bytes = archive(&[("debian-binary", b"2.0\n".to_vec()), ("odd", b"abc".to_vec()), ("last", b"z".to_vec())]);
        let expected = "!<arch>\n\
            debian-binary   0           0     0     100644  4         `\n2.0\n\
            odd             0           0     0     100644  3         `\nabc\n\
            last            0           0     0     100644  1         `\nz\n";
        // The padding of `abc` is the line break that the text above has.
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}
