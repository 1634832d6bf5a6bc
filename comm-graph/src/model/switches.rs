//! Order of links and flattening of switches that show their insides.

use super::kinds::{LinkKind, NodeKind, NodeRole};
use super::system::{LinkId, NodeId, System};

/// The generation (4 or 5) of a Broadcom switch that shows one bridge per virtual switch, when
/// `identity` is that of the outer (`inner == false`) or of an inner bridge.
///
/// Generation 4 uses one identity for both, generation 5 tells them apart.
fn two_level_generation(identity: u64, inner: bool) -> Option<u32> {
    match (identity & !0xfff, inner) {
        (0x1000_c010_1000_a000, _) => Some(4),
        (0x1000_c030_1000_0000, false) | (0x1000_c030_1000_1000, true) => Some(5),
        _ => None,
    }
}

/// Joins the inner bridges of a two-level switch with the outer one: traffic between them stays
/// inside one chip, so it counts as one switch.
pub(super) fn flatten(system: &mut System) {
    for switch in system.of_kind(NodeKind::Pci).to_vec() {
        let NodeRole::Pci(pci) = &system.node(switch).role else {
            continue;
        };
        let Some(generation) = two_level_generation(pci.identity, false) else {
            continue;
        };
        let inner: Vec<NodeId> = system
            .links_of(switch)
            .map(|(_, link)| link.to)
            .filter(|to| match &system.node(*to).role {
                NodeRole::Pci(pci) => two_level_generation(pci.identity, true) == Some(generation),
                _ => false,
            })
            .collect();
        for bridge in inner {
            // What hangs below the bridge moves up, behind the links the switch already has.
            let below: Vec<LinkId> = system
                .links_of(bridge)
                .filter(|(_, link)| link.to != switch)
                .map(|(id, _)| id)
                .collect();
            for down in below {
                let child = system.link(down).to;
                let up: Vec<LinkId> = system
                    .links_of(child)
                    .filter(|(_, link)| link.to == bridge)
                    .map(|(id, _)| id)
                    .collect();
                system.link_mut(down).from = switch;
                system.node_mut(switch).links.push(down);
                system.node_mut(bridge).links.retain(|link| *link != down);
                for link in up {
                    system.link_mut(link).to = switch;
                }
            }
            system.remove_node(bridge);
        }
    }
}

/// Puts the way up behind the other links of every node of the PCI trees.
pub(super) fn order_links(system: &mut System) {
    for cpu in system.of_kind(NodeKind::Cpu).to_vec() {
        let mut pending = vec![(cpu, None)];
        let mut visited = vec![false; system.node_count()];
        while let Some((node, parent)) = pending.pop() {
            if std::mem::replace(&mut visited[node.index()], true) {
                continue;
            }
            let up = |link: &LinkId, system: &System| Some(system.link(*link).to) == parent;
            let links = system.node(node).links.clone();
            let mut ordered: Vec<LinkId> = links
                .iter()
                .copied()
                .filter(|link| !up(link, system))
                .collect();
            ordered.extend(links.iter().copied().filter(|link| up(link, system)));
            pending.extend(
                ordered
                    .iter()
                    .map(|link| system.link(*link))
                    .filter(|link| link.kind == LinkKind::Pci && Some(link.to) != parent)
                    .map(|link| (link.to, Some(node))),
            );
            system.node_mut(node).links = ordered;
        }
    }
}
