//! Against the running kernel and the installed nft, each test in a network namespace of its own.
//! They need root.

#[cfg(test)]
mod commit;
#[cfg(test)]
mod events;
#[cfg(test)]
mod listing;
#[cfg(test)]
mod namespace;
#[cfg(test)]
mod roundtrip;
#[cfg(test)]
mod rt;
#[cfg(test)]
mod sample;
