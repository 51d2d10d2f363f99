//! Which endpoint sits in which slot of a kernel map.
//!
//! A pool is a sorted set, but the kernel picks by number. If the numbers followed the sorted
//! order, one new endpoint could renumber a thousand others. So slots are kept: survivors stay
//! where they are, newcomers fill the holes, and only when a pool shrinks do the last move down.

use std::collections::HashSet;

use sluice_model::route::Backend;

/// The slots for `pool`, changed as little as possible from `old`. `old` may have gaps (as read
/// back from a kernel that somebody edited) and may be empty.
pub fn arrange(old: &[Option<Backend>], pool: &[Backend]) -> Box<[Backend]> {
    let mut unplaced: HashSet<(_, _)> = pool.iter().map(|b| (b.ip, b.port)).collect();
    let mut slots: Vec<Option<Backend>> = vec![None; pool.len()];
    let current = |slot: &Option<Backend>| {
        let old = (*slot)?;
        let at = pool
            .binary_search_by_key(&(old.ip, old.port), |b| (b.ip, b.port))
            .ok()?;
        Some(pool[at])
    };
    for (slot, old) in slots.iter_mut().zip(old) {
        *slot = current(old).filter(|b| unplaced.remove(&(b.ip, b.port)));
    }
    let mut rest = pool.iter().filter(|b| unplaced.contains(&(b.ip, b.port)));
    slots
        .iter()
        .map(|slot| slot.or_else(|| rest.next().copied()))
        .map_while(|b| b)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(last: &[u8]) -> Vec<Backend> {
        last.iter()
            .map(|n| Backend {
                ip: [198, 51, 100, *n].into(),
                port: 8080,
                local: false,
            })
            .collect()
    }

    fn after(old: &[u8], new: &[u8]) -> Vec<u8> {
        let old: Vec<_> = pool(old).into_iter().map(Some).collect();
        arrange(&old, &pool(new))
            .iter()
            .map(|b| match b.ip {
                std::net::IpAddr::V4(ip) => ip.octets()[3],
                std::net::IpAddr::V6(_) => 0,
            })
            .collect()
    }

    #[test]
    fn replaced_endpoint_takes_the_free_slot() {
        assert_eq!(after(&[2, 4, 6], &[1, 2, 6]), [2, 1, 6]);
    }

    #[test]
    fn newcomer_goes_last_even_if_it_sorts_first() {
        assert_eq!(after(&[2, 4], &[1, 2, 4]), [2, 4, 1]);
    }

    #[test]
    fn shrinking_moves_only_the_last_into_the_hole() {
        assert_eq!(after(&[1, 2, 3, 4], &[1, 3, 4]), [1, 4, 3]);
    }

    #[test]
    fn gaps_and_duplicates_in_what_was_read_are_filled() {
        let p = pool(&[1, 2, 3]);
        let old = [None, Some(p[0]), Some(p[0])];
        assert_eq!(&*arrange(&old, &p), [p[1], p[0], p[2]]);
    }
}
