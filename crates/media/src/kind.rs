//! Detects the format of a file by its first bytes, because chats and browsers use arbitrary extensions for images.

use image::ImageFormat;

/// Detected format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An image format that models accept.
    Shown(Shown),
    /// An image format that they do not accept, by its common name.
    Foreign(&'static str),
    /// Anything else.
    Unknown,
}

/// Image formats that models accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Png,
    Jpeg,
    Gif,
    Webp,
}

impl Kind {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Self::Shown(Shown::Png),
            [0xff, 0xd8, 0xff, ..] => Self::Shown(Shown::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Self::Shown(Shown::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Self::Shown(Shown::Webp),
            // Two letters are not sufficient; the four reserved bytes are always zero.
            [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => Self::Foreign("BMP"),
            [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Self::Foreign("TIFF"),
            [_, _, _, _, b'f', b't', b'y', b'p', a, b, c, d, ..] => match &[*a, *b, *c, *d] {
                b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" => Self::Foreign("HEIC"),
                b"avif" | b"avis" => Self::Foreign("AVIF"),
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }
}

impl Shown {
    pub(crate) fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }

    pub(crate) fn format(self) -> ImageFormat {
        match self {
            Self::Png => ImageFormat::Png,
            Self::Jpeg => ImageFormat::Jpeg,
            Self::Gif => ImageFormat::Gif,
            Self::Webp => ImageFormat::WebP,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_say_what_a_file_is() {
        for (bytes, kind) in [
            (&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], Kind::Shown(Shown::Png)),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", Kind::Shown(Shown::Jpeg)),
            (b"GIF87a\x01\0", Kind::Shown(Shown::Gif)),
            (b"GIF89a\x01\0", Kind::Shown(Shown::Gif)),
            (b"RIFF\x10\0\0\0WEBPVP8L", Kind::Shown(Shown::Webp)),
            (b"RIFF\x10\0\0\0WAVEfmt ", Kind::Unknown),
            (b"BM\x36\0\0\0\0\0\0\0\x36\0", Kind::Foreign("BMP")),
            (b"BMW is a maker of cars", Kind::Unknown),
            (b"II*\0\x08\0\0\0", Kind::Foreign("TIFF")),
            (b"MM\0*\0\0\0\x08", Kind::Foreign("TIFF")),
            (b"\0\0\0\x18ftypheic\0\0\0\0", Kind::Foreign("HEIC")),
            (b"\0\0\0\x18ftypmif1\0\0\0\0", Kind::Foreign("HEIC")),
            (b"\0\0\0\x18ftypavif\0\0\0\0", Kind::Foreign("AVIF")),
            (b"\0\0\0\x18ftypisom\0\0\0\0", Kind::Unknown),
            (b"%PDF-1.7", Kind::Unknown),
            (b"\xff\xd8", Kind::Unknown),
            (b"", Kind::Unknown),
        ] {
            assert_eq!(Kind::of(bytes), kind, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
