//! Refusals by security associations: of what the tunnel does not permit, behind the last number, and behind the end of a lifetime.

use dataplane::replay::Way;
use dataplane::sa::{Keys, SaAddition, SaError, SaRequest};
use wire::esp::{Direction, Esn, Secret, Suite};

use crate::esp::{Outer, site};
use crate::scene::Gateway;

/// The tunnel of the policy decides which algorithms and numbers there are, for associations at run time, too, and for those of before a reload.
#[test]
fn what_the_tunnel_does_not_permit_is_refused_at_run_time() {
    let asked = |gateway: &Gateway, direction, esn, algorithm, auth, keys: [usize; 2]| {
        let [cipher, auth_key] = keys.map(|length| Secret::new(vec![0x5a; length].into()));
        let keys = Keys { cipher, auth: auth_key };
        let (suite, spi) = (Suite::named(algorithm, auth).unwrap(), 0x7000);
        let (tunnel, selectors, agreed) = ("peer", &[][..], None);
        let request = SaRequest { tunnel, direction, spi, esn, suite, keys: &keys, selectors, agreed };
        SaAddition::new(&gateway.tables, &request)
    };
    let of = |more| {
        let header = "[interface.peer.esp]\n";
        Gateway::new(&site(1, 2, Outer::V4, "").replace(header, &format!("{header}{more}")), Way::Run)
    };
    let (strict, lenient, off) = (of(""), of("legacy = true\n"), of("window = \"off\"\n"));
    let weak = [
        ("des-cbc", Some("hmac-sha1-96"), [8, 20]),
        ("3des-cbc", Some("hmac-sha256-128"), [24, 32]),
        ("aes128-cbc", Some("hmac-md5-96"), [16, 16]),
        ("aes128-cbc", Some("none"), [16, 0]),
    ];
    for direction in [Direction::In, Direction::Out] {
        for (algorithm, auth, lengths) in weak {
            let refused = asked(&strict, direction, Esn::Off, algorithm, auth, lengths);
            assert!(matches!(refused, Err(SaError::Legacy { .. })), "{algorithm} {auth:?}");
            let allowed = asked(&lenient, direction, Esn::Off, algorithm, auth, lengths).unwrap();
            assert_eq!(allowed.check(&lenient.tables), Ok(()));
            assert!(matches!(allowed.check(&strict.tables), Err(SaError::Legacy { .. })));
        }
        let strong = asked(&strict, direction, Esn::On, "aes128-gcm", None, [20, 0]).unwrap();
        let outcome = asked(&off, direction, Esn::On, "aes128-gcm", None, [20, 0]);
        let wanted = match direction {
            Direction::In => Err(SaError::NoWindow("peer".to_owned())),
            // The window is the peer's.
            Direction::Out => Ok(()),
        };
        assert_eq!((outcome.map(|_| ()), strong.check(&off.tables)), (wanted.clone(), wanted));
        assert_eq!(asked(&off, direction, Esn::Off, "aes128-gcm", None, [20, 0]).map(|_| ()), Ok(()));
    }
}
