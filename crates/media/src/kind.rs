//! Detects the format of a file by its first bytes, because chats and browsers use arbitrary extensions for images.

use image::ImageFormat;

/// Detected format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileFormat {
    /// An image format that models accept.
    Supported(SupportedFormat),
    /// Common name of an image format that models do not accept, such as `HEIC`.
    Unsupported(&'static str),
    /// Anything else.
    Unknown,
}

/// Image formats that models accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SupportedFormat {
    Png,
    Jpeg,
    Gif,
    Webp,
}

impl FileFormat {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Self::Supported(SupportedFormat::Png),
            [0xff, 0xd8, 0xff, ..] => Self::Supported(SupportedFormat::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Self::Supported(SupportedFormat::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Self::Supported(SupportedFormat::Webp),
            // Two letters are not sufficient; the four reserved bytes are always zero.
            [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => Self::Unsupported("BMP"),
            [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Self::Unsupported("TIFF"),
            [_, _, _, _, b'f', b't', b'y', b'p', a, b, c, d, ..] => match &[*a, *b, *c, *d] {
                b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" => {
                    Self::Unsupported("HEIC")
                }
                b"avif" | b"avis" => Self::Unsupported("AVIF"),
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }
}

/// Returns the MIME type of an image in a format that models accept; `None` for anything else.
pub fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match FileFormat::of(bytes) {
        FileFormat::Supported(format) => Some(format.mime()),
        FileFormat::Unsupported(_) | FileFormat::Unknown => None,
    }
}

impl SupportedFormat {
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
    fn the_format_is_detected_by_the_first_bytes() {
        for (bytes, kind) in [
            (&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], FileFormat::Supported(SupportedFormat::Png)),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", FileFormat::Supported(SupportedFormat::Jpeg)),
            (b"GIF87a\x01\0", FileFormat::Supported(SupportedFormat::Gif)),
            (b"GIF89a\x01\0", FileFormat::Supported(SupportedFormat::Gif)),
            (b"RIFF\x10\0\0\0WEBPVP8L", FileFormat::Supported(SupportedFormat::Webp)),
            (b"RIFF\x10\0\0\0WAVEfmt ", FileFormat::Unknown),
            (b"BM\x36\0\0\0\0\0\0\0\x36\0", FileFormat::Unsupported("BMP")),
            (b"BMW is a maker of cars", FileFormat::Unknown),
            (b"II*\0\x08\0\0\0", FileFormat::Unsupported("TIFF")),
            (b"MM\0*\0\0\0\x08", FileFormat::Unsupported("TIFF")),
            (b"\0\0\0\x18ftypheic\0\0\0\0", FileFormat::Unsupported("HEIC")),
            (b"\0\0\0\x18ftypmif1\0\0\0\0", FileFormat::Unsupported("HEIC")),
            (b"\0\0\0\x18ftypavif\0\0\0\0", FileFormat::Unsupported("AVIF")),
            (b"\0\0\0\x18ftypisom\0\0\0\0", FileFormat::Unknown),
            (b"%PDF-1.7", FileFormat::Unknown),
            (b"\xff\xd8", FileFormat::Unknown),
            (b"", FileFormat::Unknown),
        ] {
            assert_eq!(FileFormat::of(bytes), kind, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
