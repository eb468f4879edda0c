//! Mends the authority of requests that name several addresses.
//!
//! The C library of gRPC, which most languages use, sends `a:1,b:2` as authority for a channel to
//! `ipv4:a:1,b:2`. h2 resets such a call, because only one port may follow a host. No part of the
//! edge reads the authority, so [`mend`] replaces all colons but the last one before h2 sees them.
//! The C library sends the header as plain text, which keeps its length, so no other byte changes.

/// A literal header without compression, whose name follows: the form that the C library sends.
const NAME: &[u8] = b"@\x0a:authority";
/// A length below this value takes one byte. The bit above it marks a compressed text.
const LENGTH_MAX: usize = 0x7f;

/// Mends the authority in a part of a HEADERS frame, if it has one with several addresses.
pub fn mend(headers: &mut [u8]) {
    let Some(start) = headers.windows(NAME.len()).position(|window| window == NAME) else {
        return;
    };
    let value = &mut headers[start + NAME.len()..];
    let Some((length, value)) = value.split_first_mut() else {
        return;
    };
    let length = usize::from(*length);
    if length >= LENGTH_MAX || length > value.len() || !value[..length].contains(&b',') {
        return mend_long(length, value);
    }
    mend_value(&mut value[..length]);
}

/// Mends an authority whose length takes two bytes.
fn mend_long(first: usize, value: &mut [u8]) {
    let Some((more, value)) = value.split_first_mut() else {
        return;
    };
    let length = first + usize::from(*more & 0x7f);
    if first == LENGTH_MAX && *more < 0x80 && length <= value.len() && value[..length].contains(&b',') {
        mend_value(&mut value[..length]);
    }
}

fn mend_value(value: &mut [u8]) {
    let last = value.iter().rposition(|byte| *byte == b':').unwrap_or_default();
    for byte in &mut value[..last] {
        if matches!(*byte, b':' | b'[' | b']') {
            *byte = b'.';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(authority: &str) -> String {
        let mut headers = [b"\x83", NAME].concat();
        if authority.len() < LENGTH_MAX {
            headers.push(u8::try_from(authority.len()).unwrap());
        } else {
            headers.extend([0x7f, u8::try_from(authority.len() - LENGTH_MAX).unwrap()]);
        }
        let start = headers.len();
        headers.extend(authority.as_bytes());
        headers.extend(b"\x86 rest: unchanged, as it is");
        let end = start + authority.len();
        mend(&mut headers);
        assert!(headers.ends_with(b"\x86 rest: unchanged, as it is"));
        String::from_utf8(headers[start..end].to_vec()).unwrap()
    }

    #[test]
    fn an_authority_with_several_addresses_keeps_its_last_port() {
        assert_eq!(mended("10.0.0.1:7401,10.0.0.2:7402"), "10.0.0.1.7401,10.0.0.2:7402");
        assert!(mended("[::1]:7401,10.0.0.2:7402").parse::<http::uri::Authority>().is_ok());
    }

    #[test]
    fn a_long_authority_is_mended_too() {
        let authority = ["node.example:7401"; 9].join(",");
        assert!(authority.parse::<http::uri::Authority>().is_err());
        assert!(mended(&authority).parse::<http::uri::Authority>().is_ok());
    }

    #[test]
    fn other_authorities_are_unchanged() {
        for authority in ["localhost:7401", "[::1]:7401", ""] {
            assert_eq!(mended(authority), authority);
        }
    }

    #[test]
    fn a_cut_header_is_unchanged() {
        let whole = [NAME, b"\x10a:1,b:2"].concat();
        let mut cut = whole.clone();
        mend(&mut cut);
        assert_eq!(cut, whole);
    }
}
