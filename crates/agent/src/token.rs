//! Tokens: secret names of devices. Whoever knows one may take the device over.

use std::fmt::Write;

/// Returns true if `token` has the form of a token: 32 hexadecimal digits.
pub(crate) fn is_token(token: &str) -> bool {
    token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Makes a token of random digits.
///
/// # Errors
/// The kernel has no random numbers.
pub(crate) fn new_token() -> Result<String, String> {
    let mut bytes = [0_u8; 16];
    let flags = rustix::rand::GetRandomFlags::empty();
    let count = rustix::rand::getrandom(&mut bytes, flags);
    match count {
        Ok(16) => Ok(bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}"); // a string takes everything
            text
        })),
        _ => Err("the kernel has no random numbers".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_no_path() {
        assert!(is_token("0123456789abcdef0123456789abcdef"));
        for wrong in ["", "../../../../etc/passwd/aaaaaaaaaa", "0123456789abcdef0123456789abcde/"] {
            assert!(!is_token(wrong), "{wrong}");
        }
    }
}
