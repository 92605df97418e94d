//! Collects and decompresses a response body up to a size limit. Never buffers more than that.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

use crate::Error;

/// A response body, possibly truncated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// The decompressed bytes.
    pub bytes: Vec<u8>,
    /// True if the body was not truncated.
    pub is_complete: bool,
}

/// Decoder of a body that is being received.
pub(crate) enum BodyDecoder {
    Plain(CappedBuffer),
    Gzip(MultiGzDecoder<CappedBuffer>),
}

impl BodyDecoder {
    /// Creates a decoder for a `Content-Encoding` header.
    pub(crate) fn new(encoding: &str, max: usize) -> Result<Self, Error> {
        let buffer = CappedBuffer { bytes: Vec::new(), max_bytes: max, is_full: false };
        match encoding.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Self::Plain(buffer)),
            "gzip" | "x-gzip" => Ok(Self::Gzip(MultiGzDecoder::new(buffer))),
            _ => Err(Error::UnexpectedEncoding),
        }
    }

    /// Decodes the next bytes; returns whether more are wanted.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        let result = match self {
            Self::Plain(buffer) => buffer.write_all(bytes),
            Self::Gzip(decoder) => decoder.write_all(bytes),
        };
        let is_full = self.buffer().is_full;
        match result {
            Ok(()) => Ok(!is_full),
            Err(_full) if is_full => Ok(false),
            Err(error) => Err(Error::Decompression { why: error.to_string() }),
        }
    }

    /// Returns the body after the last bytes.
    pub(crate) fn finish(mut self) -> Result<Body, Error> {
        if let Self::Gzip(decoder) = &mut self
            && let Err(error) = decoder.try_finish()
            && !decoder.get_ref().is_full
        {
            return Err(Error::Decompression { why: error.to_string() });
        }
        let buffer = std::mem::take(self.buffer());
        Ok(Body { bytes: buffer.bytes, is_complete: !buffer.is_full })
    }

    fn buffer(&mut self) -> &mut CappedBuffer {
        match self {
            Self::Plain(buffer) => buffer,
            Self::Gzip(decoder) => decoder.get_mut(),
        }
    }
}

/// A buffer that rejects writes beyond its limit.
#[derive(Debug, Default)]
pub(crate) struct CappedBuffer {
    bytes: Vec<u8>,
    max_bytes: usize,
    is_full: bool,
}

impl Write for CappedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.max_bytes - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..count]);
        if count < bytes.len() {
            self.is_full = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Decodes a body chunk by chunk; returns it with the number of chunks consumed.
    fn unpack(encoding: &str, compressed: &[u8], piece: usize, max: usize) -> Result<(Body, usize), String> {
        let mut decoder = BodyDecoder::new(encoding, max).map_err(|error| error.to_string())?;
        let mut consumed = 0;
        for piece in compressed.chunks(piece) {
            consumed += 1;
            if !decoder.push(piece).map_err(|error| error.to_string())? {
                break;
            }
        }
        decoder.finish().map(|body| (body, consumed)).map_err(|error| error.to_string())
    }

    fn whole(bytes: &[u8]) -> Body {
        Body { bytes: bytes.to_vec(), is_complete: true }
    }

    #[test]
    fn a_body_of_the_maximum_size_is_complete() {
        for (encoding, compressed) in [("", b"hello".to_vec()), ("gzip", gzip(b"hello")), ("X-GZIP", gzip(b"hello"))] {
            for piece in [1, 2, 100] {
                let read = |max| unpack(encoding, &compressed, piece, max).unwrap().0;
                assert_eq!(read(5), whole(b"hello"));
                assert_eq!(read(4), Body { bytes: b"hell".to_vec(), is_complete: false });
                assert_eq!(read(0), Body { bytes: Vec::new(), is_complete: false });
            }
        }
    }

    #[test]
    fn a_decompression_bomb_is_not_unpacked() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 100_000);
        let (body, consumed) = unpack("gzip", &bomb, 1000, 10_000).unwrap();
        assert_eq!(
            (body.bytes.len(), body.bytes.capacity() < 65_536, body.is_complete, consumed),
            (10_000, true, false, 1)
        );
    }

    #[test]
    fn a_decompression_bomb_in_many_parts_is_not_unpacked() {
        let parts = gzip(&[0; 1000]).repeat(1000);
        assert_eq!(unpack("gzip", &parts, 64, 1500).unwrap().0, Body { bytes: vec![0; 1500], is_complete: false });
    }

    #[test]
    fn broken_and_unknown_encodings_are_refused() {
        let mut compressed = gzip(b"hello hello hello");
        compressed.truncate(12);
        for (encoding, compressed) in
            [("gzip", &compressed[..]), ("gzip", b"no gzip at all"), ("br", b""), ("gzip, gzip", b"")]
        {
            assert!(unpack(encoding, compressed, 100, 100).is_err(), "{encoding}");
        }
    }

    #[test]
    fn an_empty_body_is_empty() {
        assert_eq!(unpack("", b"", 1, 10).unwrap().0, whole(b""));
    }
}
