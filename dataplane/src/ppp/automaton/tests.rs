use super::*;

/// The state transition table of RFC 1661, section 4.1, its two halves side by side. `-`: not possible.
const TABLE: &str = "
Up    -> 2 irc,scr/6 - - - - - - - -
Down  -> - - 0 tls/1 0 1 1 1 1 tld/1
Open  -> tls/1 1 irc,scr/6 3r 5r 5r 6 7 8 9r
Close -> 0 tlf/0 2 2 4 4 irc,str/4 irc,str/4 irc,str/4 tld,irc,str/4
TO+   -> - - - - str/4 str/5 scr/6 scr/6 scr/8 -
TO-   -> - - - - tlf/2 tlf/3 tlf/3p tlf/3p tlf/3p -
RCR+  -> - - sta/2 irc,scr,sca/8 4 5 sca/8 sca,tlu/9 sca/8 tld,scr,sca/8
RCR-  -> - - sta/2 irc,scr,scn/6 4 5 scn/6 scn/7 scn/6 tld,scr,scn/6
RCA   -> - - sta/2 sta/3 4 5 irc/7 scr/6x irc,tlu/9 tld,scr/6x
RCN   -> - - sta/2 sta/3 4 5 irc,scr/6 scr/6x irc,scr/8 tld,scr/6x
RTR   -> - - sta/2 sta/3 sta/4 sta/5 sta/6 sta/6 sta/6 tld,zrc,sta/5
RTA   -> - - 2 3 tlf/2 tlf/3 6 6 8 tld,scr/6
RUC   -> - - scj/2 scj/3 scj/4 scj/5 scj/6 scj/7 scj/8 scj/9
RXJ+  -> - - 2 3 4 5 6 6 8 9
RXJ-  -> - - tlf/2 tlf/3 tlf/2 tlf/3 tlf/3 tlf/3 tlf/3 tld,irc,str/5
RXR   -> - - 2 3 4 5 6 7 8 ser/9
";

const STATES: [State; 10] = [
    State::Initial,
    State::Starting,
    State::Closed,
    State::Stopped,
    State::Closing,
    State::Stopping,
    State::ReqSent,
    State::AckRcvd,
    State::AckSent,
    State::Opened,
];

fn event(name: &str) -> Event {
    match name {
        "Up" => Event::Up,
        "Down" => Event::Down,
        "Open" => Event::Open,
        "Close" => Event::Close,
        "TO+" => Event::Timeout,
        "TO-" => Event::LastTimeout,
        "RCR+" => Event::RequestGood,
        "RCR-" => Event::RequestBad,
        "RCA" => Event::Ack,
        "RCN" => Event::Nak,
        "RTR" => Event::TerminateRequest,
        "RTA" => Event::TerminateAck,
        "RUC" => Event::UnknownCode,
        "RXJ+" => Event::RejectGood,
        "RXJ-" => Event::RejectBad,
        "RXR" => Event::Echo,
        other => panic!("{other}"),
    }
}

fn action(name: &str) -> Actions {
    match name {
        "tlu" => Actions::TLU,
        "tld" => Actions::TLD,
        "tls" => Actions::TLS,
        "tlf" => Actions::TLF,
        "irc" => Actions::IRC,
        "zrc" => Actions::ZRC,
        "scr" => Actions::SCR,
        "sca" => Actions::SCA,
        "scn" => Actions::SCN,
        "str" => Actions::STR,
        "sta" => Actions::STA,
        "scj" => Actions::SCJ,
        "ser" => Actions::SER,
        other => panic!("{other}"),
    }
}

#[test]
fn transitions_are_those_of_the_rfc() {
    let mut rows = 0;
    for line in TABLE.trim().lines() {
        let (name, cells) = line.split_once("->").unwrap();
        let cells: Vec<&str> = cells.split_whitespace().collect();
        assert_eq!(cells.len(), STATES.len(), "{line}");
        for (state, cell) in STATES.into_iter().zip(cells) {
            let (actions, to) = cell.rsplit_once('/').unwrap_or(("", cell));
            let expected = match to {
                // An event that cannot be changes nothing.
                "-" => (Actions::NONE, state),
                to => {
                    let number = to.trim_end_matches(['r', 'p', 'x']).parse::<usize>().unwrap();
                    let actions = actions.split(',').filter(|name| !name.is_empty());
                    (actions.map(action).fold(Actions::NONE, Actions::and), STATES[number])
                }
            };
            assert_eq!(next(state, event(name.trim())), expected, "{} in {state:?}", name.trim());
        }
        rows += 1;
    }
    assert_eq!(rows, 16);
}
