use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use super::*;

const SHOWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 2));

/// A text with two announcements in it, the places of their addresses, and the text as it is shown.
fn text(gaps: [usize; 3], ports: [u16; 2]) -> (Vec<u8>, [Edit; 2], Vec<u8>) {
    let (mut old, mut new, mut edits) = (Vec::new(), Vec::new(), [Edit::default(); 2]);
    for (place, gap) in gaps.into_iter().enumerate() {
        old.extend(std::iter::repeat_n(b'a' + place as u8, gap));
        new.extend(std::iter::repeat_n(b'a' + place as u8, gap));
        if let (Some(edit), Some(port)) = (edits.get_mut(place), ports.get(place)) {
            // One that becomes longer, and one that becomes shorter.
            let (before, form) =
                [("1,2,3,4,5,6", Form::Numbers), ("100.200.100.200|65535", Form::Pair)][place];
            let after = form.text(SHOWN, *port, b'|').unwrap();
            *edit = Edit {
                at: old.len() as u32,
                port: *port,
                old: before.len() as u8,
                new: after.len() as u8,
                form: form as u8,
                delimiter: b'|',
                unused: [0; 2],
            };
            old.extend(before.bytes());
            new.extend(after);
        }
    }
    (old, edits, new)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// However it is cut, each piece is a piece of the text as it is shown, and all of them together are all of it.
    #[test]
    fn pieces_are_pieces_of_what_is_shown(
        gaps in any::<[u8; 3]>(),
        ports in any::<[u16; 2]>(),
        isn in any::<u32>(),
        cuts in proptest::collection::vec(any::<(u16, u8)>(), 1..20),
    ) {
        let (old, edits, new) = text(gaps.map(|gap| usize::from(gap % 9)), ports);
        let mut stream = Stream::NEW;
        stream.begin(isn);
        for edit in edits {
            stream.edit(Edit { at: isn.wrapping_add(edit.at), ..edit }).unwrap();
        }
        let mut out = [0; 256];
        let mut piece = |at: usize, len: usize| -> (usize, Vec<u8>) {
            let seq = isn.wrapping_add(at as u32);
            let many = stream.write(seq, &old[at..at + len], SHOWN, &mut out).unwrap();
            let at = stream.outward(seq, Edge::Begin).wrapping_sub(isn) as usize;
            (at, out[..many].to_vec())
        };
        for (at, len) in cuts {
            let at = usize::from(at) % old.len();
            let len = usize::from(len) % (old.len() - at + 1);
            let (to, bytes) = piece(at, len);
            prop_assert_eq!(&new[to..to + bytes.len()], &bytes[..], "{} bytes at {}", len, at);
        }
        let (to, bytes) = piece(0, old.len());
        prop_assert_eq!((to, &bytes), (0, &new));
        // An acknowledgement counts whole texts, never more than has come, and not less than all before.
        let mut last = 0;
        for number in 0..=new.len() {
            let seq = isn.wrapping_add(number as u32);
            let floor = stream.inward(seq, Edge::Begin).wrapping_sub(isn);
            let ceiling = stream.inward(seq, Edge::End).wrapping_sub(isn);
            prop_assert!(last <= floor && floor <= ceiling && ceiling as usize <= old.len());
            let back = |at: u32| stream.outward(isn.wrapping_add(at), Edge::Begin).wrapping_sub(isn) as usize;
            prop_assert!(back(floor) <= number && number <= back(ceiling));
            last = floor;
        }
        prop_assert_eq!(last as usize, old.len());
        prop_assert!(stream.edit(Edit::default()).is_err(), "nothing is acknowledged");
        // Far behind both, their difference is all that is left.
        let growth = (new.len() as u32).wrapping_sub(old.len() as u32);
        let far = isn.wrapping_add(old.len() as u32 + FAR);
        stream.acknowledge(far);
        stream.acknowledge(far);
        prop_assert!(stream.edits().is_empty());
        prop_assert_eq!(stream.outward(far, Edge::Begin), far.wrapping_add(growth));
        prop_assert_eq!(stream.inward(far.wrapping_add(growth), Edge::Begin), far);
    }

    /// A stream from a file may be anything.
    #[test]
    fn any_stream_is_borne(words in any::<[u32; 11]>(), at in any::<u32>(), text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut stream: Stream = bytemuck::cast(words);
        let mut out = [0; 512];
        let _ = stream.write(at, &text, SHOWN, &mut out);
        let _ = (stream.outward(at, Edge::End), stream.inward(at, Edge::Begin), stream.touches(at, text.len()));
        stream.acknowledge(at);
        let _ = stream.edit(Edit { at, ..Edit::default() });
        prop_assert!(stream.edits().len() <= MOST_EDITS);
    }
}
