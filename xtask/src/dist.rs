//! `dist`: everything that is published for this platform, in `target/dist-packages`: a tarball, a Debian package, a
//! container file, npm packages, checksums and a bill of materials. `--test` runs them, with npx and in
//! a clean Debian root.

mod clean_root;
mod debian;
mod glibc;
mod npm;
mod sbom;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{
    gateway::{self, BuildProfile},
    shell,
};

/// Target that has no dependency on the machine's C library.
const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";
/// Shells for which completions are generated, and where Debian expects them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/homard"),
    ("zsh", "usr/share/zsh/vendor-completions/_homard"),
    ("fish", "usr/share/fish/vendor_completions.d/homard.fish"),
];
/// Maximum size of the installed files in bytes.
const MAX_INSTALLED: u64 = 30 * 1024 * 1024;

/// Arguments of `dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Package this binary instead of building one
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Run the packages: with npx, and in a clean Debian root; needs root, npm, debootstrap and the network
    #[arg(long)]
    test: bool,
    /// Directory of the clean Debian root; reused if it exists
    #[arg(long, value_name = "DIR", requires = "test")]
    root: Option<PathBuf>,
}

/// What is packaged.
struct Release {
    version: String,
    /// Architecture as Debian names it.
    architecture: &'static str,
    /// Files as they are installed, below this directory.
    tree: PathBuf,
    /// Oldest C library that the binary works with; `None` for a static binary.
    glibc: Option<glibc::Version>,
    /// Directory of the packages.
    out: PathBuf,
}

/// Builds all packages.
pub(crate) fn run(args: &Args) -> Result<()> {
    let out = shell::target()?.join("dist-packages");
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    let binary = args.binary.clone().map_or_else(build, Ok)?;
    let release = stage(&binary, &out)?;
    release.tarball()?;
    let deb = debian::package(&release)?;
    npm::packages(&release)?;
    release.container()?;
    sbom::write(&release)?;
    release.checksums()?;
    let size = installed_size(&release.tree)?;
    // A given binary may be a debug build.
    let is_own_build = args.binary.is_none();
    ensure!(
        size <= MAX_INSTALLED || !is_own_build,
        "the installed files have {size} bytes; at most {MAX_INSTALLED} are allowed"
    );
    println!("installed size: {:.1} MB", size as f64 / 1e6);
    match release.glibc {
        Some(version) => {
            println!("needs glibc {version} or newer; {STATIC_TARGET} is not installed, so it is not static")
        }
        None => println!("static: needs no C library"),
    }
    for path in fs::read_dir(&release.out)? {
        println!("{}", path?.path().display());
    }
    if args.test {
        npm::test(&release)?;
        clean_root::test(&clean_root::Packages { deb: &deb, release: &release, is_own_build }, args.root.as_deref())?;
    }
    Ok(())
}

/// Builds the binary; statically if the target for that is installed.
fn build() -> Result<PathBuf> {
    if is_static_available() {
        let args = ["build", "--package", "homard", "--profile", "dist", "--target", STATIC_TARGET];
        shell::run(&mut shell::cargo(&args))?;
        return Ok(shell::target()?.join(STATIC_TARGET).join("dist/homard"));
    }
    gateway::build(BuildProfile::Dist)
}

fn is_static_available() -> bool {
    let libdir = Command::new("rustc").args(["--print", "target-libdir", "--target", STATIC_TARGET]).output();
    let libdir = libdir.ok().filter(|output| output.status.success());
    libdir.is_some_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).exists())
}

/// Lays the files out as they are installed: the binary, manual pages, completions and units.
fn stage(binary: &Path, out: &Path) -> Result<Release> {
    let tree = out.join("tree");
    let program = tree.join("usr/bin/homard");
    install(&program, &fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?, 0o755)?;
    let man = tree.join("usr/share/man/man1");
    fs::create_dir_all(&man)?;
    shell::run(Command::new(&program).arg("man").arg(&man))?;
    for page in fs::read_dir(&man)? {
        shell::run(Command::new("gzip").args(["-9", "-n"]).arg(page?.path()))?;
    }
    for (name, path) in COMPLETIONS {
        install(&tree.join(path), &shell::output(Command::new(&program).args(["completions", name]))?, 0o644)?;
    }
    for (name, text) in units(&program)? {
        install(&tree.join("usr/lib/systemd/system").join(name), text.as_bytes(), 0o644)?;
    }
    let documents = tree.join("usr/share/doc/homard");
    install(&documents.join("copyright"), &fs::read(shell::root().join("LICENSE"))?, 0o644)?;
    let version = String::from_utf8(shell::output(Command::new(&program).arg("--version"))?)?;
    let version = version.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    let bytes = fs::read(&program)?;
    Ok(Release { version, architecture: architecture()?, tree, glibc: glibc::required(&bytes), out: out.to_owned() })
}

/// Returns the units of the system service, as the installed binary would write them.
fn units(program: &Path) -> Result<Vec<(&'static str, String)>> {
    let state = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.args(["gateway", "install", "--print", "--system", "--program", "/usr/bin/homard"]);
    // The config of this user does not matter.
    command.env_clear().env("HOME", state.path());
    let text = String::from_utf8(shell::output(&mut command)?)?;
    let (service, socket) =
        text.split_once("\n# Written by homard gateway install.\n").context("there is no socket unit")?;
    Ok(vec![
        ("homard.service", format!("{}\n", service.trim_end())),
        ("homard.socket", format!("{}\n", socket.trim_end())),
    ])
}

fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("Debian's name of the architecture {other} is not known here"),
    }
}

/// Writes a file with these permissions; creates its folders.
fn install(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let folder = path.parent().context("a file has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// Packs a folder the same way every time.
fn tar(archive: &Path, folder: &Path, more: &[&str]) -> Result<()> {
    let mut command = Command::new("tar");
    command.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--format=gnu"]);
    command.args(more).args(["-I", "gzip -9 -n", "-cf"]).arg(archive).arg("-C").arg(folder).arg(".");
    shell::run(&mut command)
}

fn installed_size(folder: &Path) -> Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(folder)? {
        let (path, metadata) = {
            let entry = entry?;
            (entry.path(), entry.metadata()?)
        };
        size += if metadata.is_dir() { installed_size(&path)? } else { metadata.len() };
    }
    Ok(size)
}

impl Release {
    /// Returns the name of the platform in file names.
    fn platform(&self) -> String {
        let libc = if self.glibc.is_some() { "gnu" } else { "musl" };
        format!("{}-linux-{libc}", std::env::consts::ARCH)
    }

    /// Packs the files in one folder, for any Linux.
    fn tarball(&self) -> Result<()> {
        let name = format!("homard-{}-{}", self.version, self.platform());
        let archive = self.out.join(format!("{name}.tar.gz"));
        tar(&archive, &self.tree, &["--transform", &format!("s,^\\./usr,./{name},")])
    }

    /// Writes the container file and the context that it needs.
    fn container(&self) -> Result<()> {
        let folder = self.out.join("container");
        fs::create_dir_all(&folder)?;
        let text = fs::read_to_string(shell::root().join("xtask/packaging/Containerfile"))?;
        fs::write(folder.join("Containerfile"), text)?;
        fs::copy(self.tree.join("usr/bin/homard"), folder.join("homard"))?;
        Ok(())
    }

    /// Writes the checksums of all files that are published.
    fn checksums(&self) -> Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.out)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.push(entry.file_name());
            }
        }
        names.sort();
        let sums = shell::output(Command::new("sha256sum").args(&names).current_dir(&self.out))?;
        Ok(fs::write(self.out.join("SHA256SUMS"), sums)?)
    }
}

/// Returns the metadata of the workspace and everything it depends on.
fn metadata() -> Result<Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let args = ["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform];
    serde_json::from_slice(&shell::output(&mut shell::cargo(&args))?).context("cargo metadata did not write JSON")
}
