//! Fits images to the limits of models: side length, size, and integrity.
//!
//! An image that fits is passed on unchanged, but only after it was decoded: the provider would reject a damaged one at
//! every later turn. Decoding is bounded, so that a small file cannot expand into a huge image.

use std::io::Cursor;

use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, ImageResult, RgbImage,
    codecs::jpeg::JpegEncoder,
    error::{ParameterError, ParameterErrorKind},
    imageops::FilterType,
    metadata::Orientation,
};

use crate::{
    FittedImage,
    kind::{FileFormat, SupportedFormat},
};

/// Maximum side length that is decoded, in pixels.
const MAX_DECODED_SIDE: u32 = 20_000;

/// Maximum memory for decoding, in bytes.
const MAX_DECODED_BYTES: u64 = 256 * 1024 * 1024;

/// JPEG qualities that are tried until the result is small enough.
const QUALITIES: [u8; 6] = [85, 75, 65, 55, 45, 40];

/// Limits of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// Maximum side length in pixels.
    pub side: u32,
    /// Maximum size of the file in bytes.
    pub bytes: usize,
}

/// 2000 pixels, and 5 MiB as providers count them, in base64.
impl Default for ImageLimits {
    fn default() -> Self {
        Self { side: 2000, bytes: 5 * 1024 * 1024 / 4 * 3 }
    }
}

/// Why an image cannot be sent to a model.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// An image format that models do not accept.
    #[error("{kind} images cannot be sent to a model; convert the file to PNG or JPEG")]
    UnsupportedFormat {
        /// Common name of the format, such as `HEIC`.
        kind: &'static str,
    },
    /// Not an image, whatever its name says.
    #[error("not a PNG, JPEG, GIF or WebP image")]
    Unknown,
    /// More pixels than are decoded.
    #[error("the image has too many pixels to be decoded; scale it down first")]
    Huge,
    /// It is truncated or damaged.
    #[error("the image is damaged; save it again")]
    Damaged(#[source] ImageError),
    /// No scaling made it small enough.
    #[error("the image cannot be scaled down to {side} pixels and {bytes} bytes")]
    Unfit {
        /// Limit of the side length.
        side: u32,
        /// Limit of the file size.
        bytes: usize,
    },
}

/// Returns the image unchanged if it fits, or scaled down until it does; of an animation that is scaled, the first
/// frame.
///
/// The aspect ratio is kept, and a scaled image is rotated upright. May compute for seconds.
pub fn fit(bytes: Vec<u8>, limits: &ImageLimits) -> Result<FittedImage, FitError> {
    let format = match FileFormat::of(&bytes) {
        FileFormat::Supported(format) => format,
        FileFormat::Unsupported(kind) => return Err(FitError::UnsupportedFormat { kind }),
        FileFormat::Unknown => return Err(FitError::Unknown),
    };
    let (image, orientation) = decode(&bytes, format).map_err(fit_error)?;
    let (width, height) = (image.width(), image.height());
    if width.max(height) <= limits.side && bytes.len() <= limits.bytes {
        return Ok(FittedImage { mime: format.mime(), data: bytes, width, height, was_scaled: false });
    }
    scale(image, orientation, limits)
}

fn decode(bytes: &[u8], format: SupportedFormat) -> ImageResult<(DynamicImage, Orientation)> {
    let mut limits = image::Limits::no_limits();
    limits.max_image_width = Some(MAX_DECODED_SIDE);
    limits.max_image_height = Some(MAX_DECODED_SIDE);
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format.format());
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder()?;
    // Reserves the memory of the decoded image; a decoder counts only its own memory.
    limits.reserve(decoder.total_bytes())?;
    if decoder.total_bytes() == 0 {
        return Err(ImageError::Parameter(ParameterError::from_kind(ParameterErrorKind::DimensionMismatch)));
    }
    if format == SupportedFormat::Webp {
        lossy_frame_sizes(bytes).try_for_each(|pixels| limits.clone().reserve(pixels * 4))?;
    }
    decoder.set_limits(limits)?;
    // An image with invalid orientation data is not rotated.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok((DynamicImage::from_decoder(decoder)?, orientation))
}

/// Returns for each lossy frame of a WebP the number of pixels that its header declares.
///
/// The decoder allocates memory for a frame before it compares the frame's size with the size of the whole image, and
/// only the latter was checked against the limits.
fn lossy_frame_sizes(webp: &[u8]) -> impl Iterator<Item = u64> {
    webp.windows(18).filter_map(|window| match window {
        [b'V', b'P', b'8', b' ', _, _, _, _, _, _, _, 0x9d, 0x01, 0x2a, w0, w1, h0, h1] => {
            let side = |low: u8, high: u8| u64::from(u16::from_le_bytes([low, high]) & 0x3fff);
            Some(side(*w0, *w1) * side(*h0, *h1))
        }
        _ => None,
    })
}

fn fit_error(error: ImageError) -> FitError {
    if matches!(error, ImageError::Limits(_)) { FitError::Huge } else { FitError::Damaged(error) }
}

fn scale(image: DynamicImage, orientation: Orientation, limits: &ImageLimits) -> Result<FittedImage, FitError> {
    let original = PixelSize { width: image.width(), height: image.height() };
    let mut side = limits.side.min(original.width.max(original.height));
    // Smaller versions are made from the first one, which is small enough to be quick and allows the original to be
    // freed.
    let largest = resize(image, original.scaled_to(side));
    while side > 0 {
        let mut scaled = resize(largest.clone(), original.scaled_to(side));
        scaled.apply_orientation(orientation);
        let (width, height) = (scaled.width(), scaled.height());
        if let Some((mime, data)) = encode(scaled, limits.bytes).map_err(fit_error)? {
            return Ok(FittedImage { mime, data, width, height, was_scaled: true });
        }
        side = side * 3 / 4;
    }
    Err(FitError::Unfit { side: limits.side, bytes: limits.bytes })
}

#[derive(Debug, Clone, Copy)]
struct PixelSize {
    width: u32,
    height: u32,
}

impl PixelSize {
    /// Returns the size with a longest side of `longest`.
    fn scaled_to(self, longest: u32) -> Self {
        let original = u64::from(self.width.max(self.height));
        let scaled = |side: u32| {
            let rounded = (u64::from(side) * u64::from(longest) + original / 2) / original;
            u32::try_from(rounded).unwrap_or(longest).max(1)
        };
        Self { width: scaled(self.width), height: scaled(self.height) }
    }
}

fn resize(image: DynamicImage, size: PixelSize) -> DynamicImage {
    let PixelSize { width, height } = size;
    if (image.width(), image.height()) == (width, height) {
        return image;
    }
    // The good filter needs 16 bytes per pixel, so a much larger image is first averaged to twice the size.
    let double = (image.width().min(width * 2), image.height().min(height * 2));
    let image = if image.width() > width * 3 { image.thumbnail_exact(double.0, double.1) } else { image };
    image.resize_exact(width, height, FilterType::Lanczos3)
}

/// Encodes to at most `max_bytes` bytes: PNG for transparent images, if small enough, else JPEG.
fn encode(image: DynamicImage, max_bytes: usize) -> ImageResult<Option<(&'static str, Vec<u8>)>> {
    let colours = if image.color().has_alpha() {
        let image = image.into_rgba8();
        if image.pixels().any(|pixel| pixel.0[3] < u8::MAX) {
            let mut png = Vec::new();
            image.write_to(&mut Cursor::new(&mut png), ImageFormat::Png)?;
            if png.len() <= max_bytes {
                return Ok(Some((SupportedFormat::Png.mime(), png)));
            }
        }
        on_white(&image)
    } else {
        image.into_rgb8()
    };
    for quality in QUALITIES {
        let mut jpeg = Vec::new();
        JpegEncoder::new_with_quality(&mut jpeg, quality).encode_image(&colours)?;
        if jpeg.len() <= max_bytes {
            return Ok(Some((SupportedFormat::Jpeg.mime(), jpeg)));
        }
    }
    Ok(None)
}

/// Renders the image on white, because JPEG has no transparency.
fn on_white(image: &image::RgbaImage) -> RgbImage {
    RgbImage::from_fn(image.width(), image.height(), |x, y| {
        let [red, green, blue, alpha] = image.get_pixel(x, y).0.map(u16::from);
        // At most 255, as a mean of two such values.
        image::Rgb([red, green, blue].map(|colour| ((colour * alpha + 255 * (255 - alpha)) / 255) as u8))
    })
}

#[cfg(test)]
mod tests;
