//! Compilation of the selectors of policy-based tunnels.

use ipnet::IpNet;
use lookup::classify::{AddressSpan, PortSpan};
use policy::model::{self, PortRange, SelectorPair};

use super::pattern::{merge, span};
use crate::tables::Selector;

/// Selectors of a tunnel, in the order of its prefixes: all of the first local one first.
pub(super) fn own(tunnel: &model::Tunnel) -> Vec<Selector> {
    tunnel.selectors().map(|pair| selector(&pair)).collect()
}

/// The same without the destinations that the tunnel has nothing to do with: its security policies.
pub(super) fn policies(tunnel: &model::Tunnel) -> Vec<Selector> {
    let direct = merge(tunnel.direct.iter().map(|net| of(*net)).collect());
    let left = |selector: Selector| {
        let remotes = without(selector.remote, &direct);
        remotes.into_iter().map(move |remote| Selector { remote, ..selector.clone() })
    };
    own(tunnel).into_iter().flat_map(left).collect()
}

fn selector(pair: &SelectorPair) -> Selector {
    let ports = |ports: Option<PortRange>| ports.map(|of| PortSpan { first: of.first, last: of.last });
    Selector {
        local: of(pair.local.net),
        remote: of(pair.remote.net),
        protocol: pair.protocol,
        local_ports: ports(pair.local.ports),
        remote_ports: ports(pair.remote.ports),
    }
}

fn of(net: IpNet) -> AddressSpan {
    span(net.network().into(), net.broadcast().into())
}

/// Addresses of `all` that none of `others` has, which are disjoint and ascend.
fn without(all: AddressSpan, others: &[AddressSpan]) -> Vec<AddressSpan> {
    let mut left = Vec::new();
    let mut next = Some(all.first);
    for other in others.iter().filter(|other| other.v6 == all.v6 && other.last >= all.first) {
        let Some(first) = next.filter(|_| other.first <= all.last) else { break };
        if other.first > first {
            left.push(AddressSpan { first, last: other.first - 1, ..all });
        }
        next = other.last.checked_add(1).filter(|next| *next <= all.last);
    }
    left.extend(next.map(|first| AddressSpan { first, ..all }));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_around_is_left_out() {
        let v4 = |first, last| AddressSpan { v6: false, first, last };
        let v6 = AddressSpan { v6: true, first: 0, last: u128::MAX };
        let all = v4(10, 20);
        assert_eq!(without(all, &[]), [all]);
        assert_eq!(without(all, &[v4(0, 9), v4(21, 30), v6]), [all]);
        assert_eq!(without(all, &[v4(0, 10), v4(15, 15), v4(20, 40)]), [v4(11, 14), v4(16, 19)]);
        assert_eq!(without(all, &[v4(12, 13)]), [v4(10, 11), v4(14, 20)]);
        assert_eq!(without(all, &[v4(10, 20)]), []);
        assert_eq!(without(all, &[v4(5, 25), v4(30, 31)]), []);
        assert_eq!(without(v6, &[v4(1, 2), v6]), []);
    }
}
