use super::*;

/// RFC 6040, figure 4: inner, outer, what goes on. All sixteen.
const FIGURE_4: [(&str, [(&str, &str); 4]); 4] = [
    ("Not-ECT", [("Not-ECT", "Not-ECT"), ("ECT(0)", "Not-ECT"), ("ECT(1)", "Not-ECT"), ("CE", "drop")]),
    ("ECT(0)", [("Not-ECT", "ECT(0)"), ("ECT(0)", "ECT(0)"), ("ECT(1)", "ECT(1)"), ("CE", "CE")]),
    ("ECT(1)", [("Not-ECT", "ECT(1)"), ("ECT(0)", "ECT(1)"), ("ECT(1)", "ECT(1)"), ("CE", "CE")]),
    ("CE", [("Not-ECT", "CE"), ("ECT(0)", "CE"), ("ECT(1)", "CE"), ("CE", "CE")]),
];

/// Bits of a name in RFC 3168, figure 1.
fn bits(name: &str) -> Option<u8> {
    match name {
        "Not-ECT" => Some(0),
        "ECT(1)" => Some(1),
        "ECT(0)" => Some(2),
        "CE" => Some(3),
        _ => None,
    }
}

#[test]
fn marks_come_in_as_figure_4_says() {
    for (inside, row) in FIGURE_4 {
        for (outside, result) in row {
            // The inner code point stays, whatever the outer one.
            let (inside, outside) = (0xb8 | bits(inside).unwrap(), 0x28 | bits(outside).unwrap());
            let right = bits(result).map(|bits| 0xb8 | bits);
            assert_eq!(inner(inside, outside, EcnUse::Copy), right, "{inside:#x} in {outside:#x}");
            assert_eq!(inner(inside, outside, EcnUse::Off), Some(inside));
        }
    }
}

#[test]
fn marks_go_out_unchanged_or_not_at_all() {
    let ef = Dscp::of_field(0xb8);
    for bits in 0..4 {
        assert_eq!(outer(0x28 | bits, None, EcnUse::Copy), 0x28 | bits);
        assert_eq!(outer(0x28 | bits, Some(ef), EcnUse::Copy), 0xb8 | bits);
        assert_eq!(outer(0x28 | bits, None, EcnUse::Off), 0x28);
        assert_eq!(outer(0x28 | bits, Some(ef), EcnUse::Off), 0xb8);
    }
}
