//! Numbers in sentences.

/// A number with its thousands apart.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `one` or `many` of something, by count.
pub fn count(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(value), if value == 1 { one } else { many })
}

/// Bytes, in the unit that suits.
pub fn bytes(value: u64) -> String {
    let units = ["kB", "MB", "GB", "TB"];
    let mut scaled = value as f64 / 1000.0;
    let mut unit = 0;
    while scaled >= 999.95 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    if value < 1000 { format!("{value} B") } else { format!("{scaled:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::{bytes, number};

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(["0", "999", "1,000", "1,234,567"], [0, 999, 1000, 1_234_567].map(number).each_ref());
        assert_eq!(
            ["999 B", "1.0 kB", "1.0 MB", "1.5 GB"],
            [999, 1000, 999_950, 1_500_000_000].map(bytes).each_ref()
        );
    }
}
