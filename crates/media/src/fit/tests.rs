//! Tests of images that fit, are made to fit, or cannot be.

use image::{
    Delay, Frame, Rgb, Rgba, RgbaImage,
    codecs::gif::{GifEncoder, Repeat},
};
use proptest::prelude::*;

use super::*;

const FORMATS: [ImageFormat; 4] = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP];
/// Prefixes that get random bytes past the format detection.
const STARTS: [&[u8]; 5] = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF\0\x01\0\0WEBPVP8 "];
const RED: Rgba<u8> = Rgba([255, 0, 0, 255]);
const BLUE: Rgba<u8> = Rgba([0, 0, 255, 255]);

fn file(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Vec::new();
    image.into().write_to(&mut Cursor::new(&mut bytes), format).unwrap();
    bytes
}

fn gradient(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| Rgb([(x * 5) as u8, (y * 3) as u8, 90]))
}

/// The left half of one colour and the right half of another.
fn halves(width: u32, height: u32, left: Rgba<u8>, right: Rgba<u8>) -> RgbaImage {
    RgbaImage::from_fn(width, height, |x, _| if x < width / 2 { left } else { right })
}

/// Pixels without a pattern, which no encoder can compress.
fn noise(width: u32, height: u32) -> RgbaImage {
    let mut state = 1_u32;
    RgbaImage::from_fn(width, height, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Rgba((state ^ (state >> 13)).to_le_bytes())
    })
}

/// Returns the properties of an image; its bytes must decode to the declared sides.
fn properties(fitted: &FittedImage) -> (&'static str, u32, u32) {
    let image = image::load_from_memory(&fitted.data).unwrap();
    assert_eq!((image.width(), image.height()), (fitted.width, fitted.height));
    (fitted.mime, fitted.width, fitted.height)
}

fn side(side: u32) -> ImageLimits {
    ImageLimits { side, ..ImageLimits::default() }
}

#[test]
fn an_image_that_fits_is_unchanged() {
    let mimes = ["image/png", "image/jpeg", "image/gif", "image/webp"];
    for (format, mime) in FORMATS.into_iter().zip(mimes) {
        let data = file(gradient(40, 20), format);
        let expected = FittedImage { mime, data: data.clone(), width: 40, height: 20, was_scaled: false };
        let exactly = ImageLimits { side: 40, bytes: data.len() };
        assert_eq!(fit(data.clone(), &exactly).unwrap(), expected);
        for tighter in [ImageLimits { side: 39, ..exactly }, ImageLimits { bytes: data.len() - 1, ..exactly }] {
            let fitted = fit(data.clone(), &tighter);
            assert!(!fitted.is_ok_and(|fitted| fitted.data == data), "{mime} {tighter:?}");
        }
    }
}

#[test]
fn unsupported_formats_are_rejected_by_name() {
    for (bytes, expected) in [
        (&b"BM\x36\0\0\0\0\0\0\0"[..], "BMP images cannot be sent to a model; convert the file to PNG or JPEG"),
        (b"II*\0\x08\0\0\0", "TIFF images cannot be sent to a model; convert the file to PNG or JPEG"),
        (b"\0\0\0\x18ftypheic", "HEIC images cannot be sent to a model; convert the file to PNG or JPEG"),
        (b"%PDF-1.7", "not a PNG, JPEG, GIF or WebP image"),
        (b"", "not a PNG, JPEG, GIF or WebP image"),
        (b"\x89PNG\r\n\x1a\n", "the image is damaged; save it again"),
    ] {
        assert_eq!(fit(bytes.to_vec(), &ImageLimits::default()).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_long_side_is_scaled_and_the_ratio_kept() {
    for ((width, height), scaled) in
        [((120, 60), (40, 20)), ((60, 120), (20, 40)), ((41, 41), (40, 40)), ((400, 1), (40, 1)), ((3, 400), (1, 40))]
    {
        let fitted = fit(file(gradient(width, height), ImageFormat::Png), &side(40)).unwrap();
        assert_eq!(properties(&fitted), ("image/jpeg", scaled.0, scaled.1));
    }
}

#[test]
fn transparency_is_kept_if_it_fits_and_becomes_white_otherwise() {
    let clear = Rgba([0, 0, 0, 0]);
    let small = fit(file(halves(80, 40, clear, RED), ImageFormat::Png), &side(40)).unwrap();
    assert_eq!(properties(&small), ("image/png", 40, 20));
    assert_eq!(image::load_from_memory(&small.data).unwrap().into_rgba8().get_pixel(2, 2).0[3], 0);

    let mut speckled = noise(80, 80);
    speckled.pixels_mut().for_each(|pixel| pixel.0[3] = 0);
    speckled.put_pixel(79, 79, RED);
    let png = file(speckled, ImageFormat::Png);
    let heavy = fit(png, &ImageLimits { side: 80, bytes: 2000 }).unwrap();
    assert_eq!(properties(&heavy), ("image/jpeg", 80, 80));
    let corner = image::load_from_memory(&heavy.data).unwrap().into_rgb8().get_pixel(2, 2).0;
    assert!(corner.iter().all(|colour| *colour > 240), "{corner:?}");
}

#[test]
fn an_opaque_alpha_channel_does_not_need_png() {
    let fitted = fit(file(halves(80, 40, RED, BLUE), ImageFormat::Png), &side(40)).unwrap();
    assert_eq!(properties(&fitted), ("image/jpeg", 40, 20));
}

#[test]
fn too_many_bytes_lower_the_quality_and_then_the_size() {
    let png = file(DynamicImage::from(noise(96, 48)).into_rgb8(), ImageFormat::Png);
    let coarse = fit(png.clone(), &ImageLimits { side: 96, bytes: 5000 }).unwrap();
    assert_eq!(properties(&coarse), ("image/jpeg", 96, 48));
    assert!(coarse.data.len() <= 5000);
    let smaller = fit(png, &ImageLimits { side: 96, bytes: 2000 }).unwrap();
    assert!(
        smaller.data.len() <= 2000 && properties(&smaller).1 < 96 && smaller.width == smaller.height * 2,
        "{smaller:?}"
    );
}

#[test]
fn impossible_limits_are_an_error() {
    for limits in [ImageLimits { side: 40, bytes: 20 }, ImageLimits { side: 0, bytes: 5000 }] {
        let expected = format!("the image cannot be scaled down to {} pixels and {} bytes", limits.side, limits.bytes);
        assert_eq!(fit(file(gradient(4, 4), ImageFormat::Png), &limits).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_scaled_image_is_rotated_upright() {
    let jpeg = file(DynamicImage::from(halves(60, 30, RED, BLUE)).into_rgb8(), ImageFormat::Jpeg);
    // The camera was rotated: what is stored on the left belongs at the top.
    let exif = b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let rotated = [&jpeg[..2], exif, &jpeg[2..]].concat();
    let fitted = fit(rotated, &side(20)).unwrap();
    assert_eq!(properties(&fitted), ("image/jpeg", 10, 20));
    let image = image::load_from_memory(&fitted.data).unwrap().into_rgb8();
    let (top, bottom) = (image.get_pixel(5, 2).0, image.get_pixel(5, 17).0);
    assert!(top[0] > 200 && top[2] < 60 && bottom[0] < 60 && bottom[2] > 200, "{top:?} {bottom:?}");
}

/// An animated GIF with a red and a blue frame.
fn animated_gif() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = GifEncoder::new(&mut bytes);
    encoder.set_repeat(Repeat::Infinite).unwrap();
    for colour in [RED, BLUE] {
        let image = RgbaImage::from_pixel(40, 40, colour);
        encoder.encode_frame(Frame::from_parts(image, 0, 0, Delay::from_numer_denom_ms(100, 1))).unwrap();
    }
    drop(encoder);
    bytes
}

fn chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let padding = &[0][..body.len() % 2];
    [name, &(body.len() as u32).to_le_bytes(), body, padding].concat()
}

/// An animated WebP with a red and a blue frame, assembled from chunks because the encoder writes only single frames.
fn animated_webp() -> Vec<u8> {
    let mut body = b"WEBP".to_vec();
    // Flags (animated) and reserved bytes, then width - 1 and height - 1, three bytes each.
    body.extend(chunk(b"VP8X", &[0b10, 0, 0, 0, 39, 0, 0, 39, 0, 0]));
    body.extend(chunk(b"ANIM", &[0; 6]));
    for colour in [RED, BLUE] {
        let single = file(DynamicImage::from(RgbaImage::from_pixel(40, 40, colour)).into_rgb8(), ImageFormat::WebP);
        let header = [0, 0, 0, 0, 0, 0, 39, 0, 0, 39, 0, 0, 100, 0, 0, 0];
        body.extend(chunk(b"ANMF", &[&header, &single[12..]].concat()));
    }
    chunk(b"RIFF", &body)
}

#[test]
fn an_animation_that_is_scaled_becomes_its_first_frame() {
    for bytes in [animated_gif(), animated_webp()] {
        assert_eq!(fit(bytes.clone(), &side(40)).unwrap().data, bytes);
        let fitted = fit(bytes, &side(10)).unwrap();
        assert_eq!(properties(&fitted), ("image/jpeg", 10, 10));
        let middle = image::load_from_memory(&fitted.data).unwrap().into_rgb8().get_pixel(5, 5).0;
        assert!(middle[0] > 200 && middle[2] < 60, "{middle:?}");
    }
}

/// CRC-32, the checksum of a PNG chunk.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// A small PNG that declares sides of `side` pixels.
fn png_bomb(side: u32) -> Vec<u8> {
    let mut bytes = file(gradient(4, 4), ImageFormat::Png);
    bytes[16..20].copy_from_slice(&side.to_be_bytes());
    bytes[20..24].copy_from_slice(&side.to_be_bytes());
    let sum = crc(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn gif_bomb(side: u16) -> Vec<u8> {
    let mut bytes = file(gradient(4, 4), ImageFormat::Gif);
    bytes[6..8].copy_from_slice(&side.to_le_bytes());
    bytes[8..10].copy_from_slice(&side.to_le_bytes());
    bytes
}

fn jpeg_bomb(side: u16) -> Vec<u8> {
    let mut bytes = file(gradient(4, 4), ImageFormat::Jpeg);
    let frame = bytes.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
    bytes[frame + 5..frame + 7].copy_from_slice(&side.to_be_bytes());
    bytes[frame + 7..frame + 9].copy_from_slice(&side.to_be_bytes());
    bytes
}

fn webp_bomb(side: u32) -> Vec<u8> {
    let mut bytes = file(gradient(4, 4), ImageFormat::WebP);
    let sides = (side - 1) | ((side - 1) << 14);
    bytes[21..25].copy_from_slice(&sides.to_le_bytes());
    bytes
}

/// A WebP that declares 4x4 while its frame declares 16383x16383.
fn hidden_webp_bomb() -> Vec<u8> {
    let mut body = b"WEBP".to_vec();
    body.extend(chunk(b"VP8X", &[0, 0, 0, 0, 3, 0, 0, 3, 0, 0]));
    body.extend(chunk(b"VP8 ", b"\x10\x02\0\x9d\x01\x2a\xff\x3f\xff\x3f\0\0\0\0\0\0"));
    chunk(b"RIFF", &body)
}

#[test]
fn a_decompression_bomb_is_rejected() {
    // One side is too long, or the pixels need too much memory.
    for bomb in [
        png_bomb(20_001),
        png_bomb(19_999),
        gif_bomb(u16::MAX),
        gif_bomb(19_999),
        jpeg_bomb(u16::MAX),
        jpeg_bomb(19_999),
        webp_bomb(16_383),
        hidden_webp_bomb(),
    ] {
        let result = fit(bomb, &ImageLimits::default());
        assert!(matches!(result, Err(FitError::Huge)), "{result:?}");
    }
}

#[test]
fn an_image_without_pixels_is_rejected() {
    for limits in [ImageLimits::default(), ImageLimits { side: 2000, bytes: 1 }] {
        assert!(matches!(fit(gif_bomb(0), &limits), Err(FitError::Damaged(_))));
    }
}

#[test]
fn a_truncated_file_is_rejected_or_unchanged_but_never_panics() {
    for format in FORMATS {
        let whole = file(gradient(24, 12), format);
        for length in 0..whole.len() {
            let cut = whole[..length].to_vec();
            if let Ok(fitted) = fit(cut.clone(), &ImageLimits::default()) {
                assert_eq!((fitted.data, fitted.was_scaled), (cut, false));
            }
        }
        assert!(
            fit(whole[..whole.len() / 2].to_vec(), &ImageLimits::default()).is_err() || format == ImageFormat::Jpeg
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_scaled_image_fits_and_keeps_its_ratio(
        width in 1_u32..160, height in 1_u32..160, side in 1_u32..100, bytes in 900_usize..4000,
    ) {
        let limits = ImageLimits { side, bytes };
        let fitted = fit(file(gradient(width, height), ImageFormat::Png), &limits).unwrap();
        let (_, scaled_width, scaled_height) = properties(&fitted);
        prop_assert!(scaled_width.max(scaled_height) <= side && fitted.data.len() <= bytes);
        let ratio = f64::from(scaled_width.max(scaled_height)) / f64::from(width.max(height));
        for (whole, scaled) in [(width, scaled_width), (height, scaled_height)] {
            prop_assert!((f64::from(whole) * ratio - f64::from(scaled)).abs() <= 1.0, "{whole} to {scaled}");
        }
    }

    #[test]
    fn damaged_files_never_panic(
        format in prop::sample::select(&FORMATS),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = file(gradient(24, 12), format);
        for (offset, byte) in damage {
            let offset = offset.index(bytes.len());
            bytes[offset] = byte;
        }
        if let Ok(fitted) = fit(bytes, &side(8)) {
            prop_assert!(fitted.width.max(fitted.height) <= 8);
        }
    }

    #[test]
    fn random_bytes_never_panic(
        start in prop::sample::select(&STARTS),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let bytes = [start, &rest].concat();
        if let Ok(fitted) = fit(bytes.clone(), &ImageLimits::default()) {
            prop_assert_eq!(fitted.data, bytes);
        }
    }
}
