//! An image that can be sent to a model.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use homard_proto::message::{Block, ImageBlock};

/// An image that can be sent to a model.
#[derive(Clone, PartialEq, Eq)]
pub struct FittedImage {
    /// MIME type of `data`, such as `image/png`.
    pub mime: &'static str,
    /// Bytes of the file.
    pub data: Vec<u8>,
    /// Width in the file in pixels, before a rotation that its EXIF data asks for.
    pub width: u32,
    /// Height in the file in pixels, before a rotation that its EXIF data asks for.
    pub height: u32,
    /// True if the image was re-encoded to fit; otherwise `data` is the original.
    pub was_scaled: bool,
}

impl FittedImage {
    /// Converts it to a message block.
    pub fn into_block(self) -> Block {
        Block::Image(ImageBlock {
            data: STANDARD.encode(self.data),
            mime_type: self.mime.to_owned(),
            ..ImageBlock::default()
        })
    }
}

/// Omits the bytes, which are private and many.
impl fmt::Debug for FittedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mime, data, width, height, was_scaled } = self;
        write!(f, "FittedImage({mime}, {width}x{height}, {} bytes, was_scaled: {was_scaled})", data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_becomes_a_base64_block() {
        let image = FittedImage { mime: "image/png", data: vec![0, 1, 2, 255], width: 1, height: 1, was_scaled: false };
        assert_eq!(format!("{image:?}"), "FittedImage(image/png, 1x1, 4 bytes, was_scaled: false)");
        let block =
            ImageBlock { data: "AAEC/w==".to_owned(), mime_type: "image/png".to_owned(), ..ImageBlock::default() };
        assert_eq!(image.into_block(), Block::Image(block));
    }
}
