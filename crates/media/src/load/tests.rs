//! Tests of images that may be loaded, and those that may not.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
};

use image::{ImageFormat, RgbImage};
use tempfile::TempDir;

use super::*;

/// A folder `root` to work in, with a home and a secret next to it, each with an image.
struct Disk {
    dir: TempDir,
    png: Vec<u8>,
}

impl Disk {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let mut png = Vec::new();
        RgbImage::new(3, 2).write_to(&mut io::Cursor::new(&mut png), ImageFormat::Png).unwrap();
        for folder in ["root/pics", "home", "secret"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
            fs::write(dir.path().join(folder).join("a b.png"), &png).unwrap();
        }
        Self { dir, png }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn path_str(&self, path: &str) -> String {
        self.at(path).to_str().unwrap().to_owned()
    }

    fn image_root(&self, beneath_only: bool) -> ImageRoot {
        ImageRoot { root: self.at("root"), home: Some(self.at("home")), beneath_only }
    }

    fn expected_image(&self) -> FittedImage {
        FittedImage { mime: "image/png", data: self.png.clone(), width: 3, height: 2, was_scaled: false }
    }

    /// Returns the error message, without the name of the temporary folder.
    fn failure(&self, reference: &str, beneath_only: bool) -> String {
        let error = load(reference, &self.image_root(beneath_only)).unwrap_err();
        error.to_string().replace(self.dir.path().to_str().unwrap(), "")
    }
}

#[test]
fn relative_absolute_and_home_paths_are_loaded() {
    let disk = Disk::new();
    for reference in
        ["pics/a b.png", "./pics/a b.png", "../secret/a b.png", "~/a b.png", &disk.path_str("secret/a b.png")]
    {
        assert_eq!(load(reference, &disk.image_root(false)).unwrap(), disk.expected_image(), "{reference}");
    }
}

#[test]
fn a_path_outside_the_sandbox_is_not_loaded() {
    let disk = Disk::new();
    symlink(disk.at("secret"), disk.at("root/door")).unwrap();
    symlink(disk.at("secret/a b.png"), disk.at("root/link.png")).unwrap();
    symlink("pics/a b.png", disk.at("root/inner.png")).unwrap();
    for reference in [
        "../secret/a b.png",
        "pics/../../secret/a b.png",
        "door/a b.png",
        "link.png",
        "~/a b.png",
        &disk.path_str("secret/a b.png"),
        &disk.path_str("root/../secret/a b.png"),
    ] {
        assert!(matches!(load(reference, &disk.image_root(true)), Err(LoadError::Outside { .. })), "{reference}");
    }
    for reference in ["pics/a b.png", "inner.png", "pics/../inner.png", &disk.path_str("root/pics/a b.png")] {
        assert_eq!(load(reference, &disk.image_root(true)).unwrap(), disk.expected_image(), "{reference}");
    }
}

#[test]
fn special_files_are_rejected_without_blocking() {
    let disk = Disk::new();
    rustix::fs::mkfifoat(CWD, disk.at("root/pipe.png"), Mode::from_raw_mode(0o600)).unwrap();
    fs::create_dir(disk.at("root/folder.png")).unwrap();
    symlink("/dev/zero", disk.at("root/device.png")).unwrap();
    let _listener = UnixListener::bind(disk.at("root/socket.png")).unwrap();
    for name in ["pipe.png", "folder.png", "device.png", "socket.png"] {
        assert_eq!(disk.failure(name, false), format!("image {name} is not a regular file"));
    }
    for name in ["pipe.png", "folder.png", "socket.png"] {
        assert_eq!(disk.failure(name, true), format!("image {name} is not a regular file"));
    }
}

#[test]
fn a_file_of_six_mebibytes_is_read_and_a_larger_one_is_not() {
    let disk = Disk::new();
    let file = File::create(disk.at("root/big.png")).unwrap();
    file.set_len(MAX_FILE_BYTES).unwrap();
    assert_eq!(disk.failure("big.png", true), "cannot send image big.png to the model");
    file.set_len(MAX_FILE_BYTES + 1).unwrap();
    assert_eq!(disk.failure("big.png", true), "image big.png is larger than 6 MiB; make it smaller");
}

#[test]
fn errors_name_the_image_and_a_remedy() {
    let disk = Disk::new();
    fs::write(disk.at("root/notes.png"), "not a picture").unwrap();
    for (reference, expected) in [
        ("gone.png", "image gone.png not found"),
        ("notes.png/x.png", "image notes.png/x.png not found"),
        ("notes.png", "cannot send image notes.png to the model"),
        ("nul\0.png", "cannot read image nul\0.png"),
        (
            "../secret/a b.png",
            "image ../secret/a b.png is outside of /root, the only directory that this run may read; copy it there",
        ),
    ] {
        assert_eq!(disk.failure(reference, true), expected);
    }
    let image_root = ImageRoot { home: None, ..disk.image_root(false) };
    assert_eq!(
        load("~/a b.png", &image_root).unwrap_err().to_string(),
        "cannot resolve the home directory in ~/a b.png; use an absolute path"
    );
}
