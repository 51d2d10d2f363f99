//! Reading a table back into the compiler's terms.

use sluice_model::fact::Family;
use sluice_netlink::Error;
use sluice_netlink::nft::{
    DataRef, ElementRef, Set, SetFlags, SetId as NetSet, Socket, TableId, TableInfo, Verdict,
};

use super::compile::Element;
use super::element::{ChainId, SetId, Value, parse_record_chain};
use super::layout::{decode_endpoint, decode_key, definition};
use super::program::{Program, REJECT};
use super::rule::table_id;
use super::tx::{Activity, ForeignElement, ObservedTable};

/// `NFT_TABLE_F_DORMANT`.
const DORMANT: u32 = 1;

/// Our table of a family among all tables.
pub(super) fn find(tables: &[TableInfo], family: Family) -> Option<&TableInfo> {
    let table = table_id(family);
    let ours = |t: &&TableInfo| t.family == Some(table.family) && t.name == table.name;
    tables.iter().find(ours)
}

/// Everything in a family's table.
pub(super) fn table(
    socket: &mut Socket,
    family: Family,
    info: &TableInfo,
) -> Result<ObservedTable, Error> {
    let table = table_id(family);
    let mut observed = ObservedTable {
        activity: match info.flags & DORMANT {
            0 => Activity::Active,
            _ => Activity::Dormant,
        },
        program: program(socket, table)?,
        ..Default::default()
    };
    let sets: Vec<Set> = observed.program.sets.values().cloned().collect();
    for set in sets {
        // A set of ours in another form makes the table be replaced: no use in reading it.
        if let Some(id) = SetId::parse(&set.name).filter(|id| definition(family, *id) == set) {
            elements(socket, table, (family, id), &mut observed)?;
        }
    }
    Ok(observed)
}

fn program(socket: &mut Socket, table: TableId<'_>) -> Result<Program, Error> {
    let mut program = Program::default();
    for info in socket.chains(table)? {
        program
            .chains
            .insert(info.chain.name.clone(), (info.chain, Vec::new()));
    }
    for info in socket.rules(table)? {
        if let Some((_, rules)) = program.chains.get_mut(&info.rule.chain) {
            rules.push(info.rule);
        }
    }
    for info in socket.sets(table)? {
        // Part of the rule that uses it, which brings it and takes it along.
        if info.set.flags.contains(SetFlags::ANONYMOUS) {
            continue;
        }
        program.sets.insert(info.set.name.clone(), info.set);
    }
    Ok(program)
}

fn elements(
    socket: &mut Socket,
    table: TableId<'_>,
    (family, id): (Family, SetId),
    observed: &mut ObservedTable,
) -> Result<(), Error> {
    let name = id.to_string();
    let read = socket.elements_as(NetSet { table, name: &name }, |element| {
        decode(family, id, &element).ok_or_else(|| ForeignElement {
            set: name.clone(),
            key: element.key.to_vec(),
            end: element.key_end.map(<[u8]>::to_vec),
        })
    })?;
    for element in read {
        match (element, id) {
            (Ok(element), SetId::Affinity(seconds)) => observed.clients.push((seconds, element)),
            (Ok(element), _) => observed.elements.push(element),
            (Err(foreign), _) => observed.foreign.push(foreign),
        }
    }
    Ok(())
}

/// An element in the compiler's terms; `None` if its key is none of ours.
pub(super) fn decode(family: Family, set: SetId, element: &ElementRef<'_>) -> Option<Element> {
    let key = decode_key(family, set, element.key, element.key_end)?;
    let value = match element.data {
        DataRef::None => Value::Member,
        DataRef::Value(bytes) => decode_endpoint(family, bytes)
            .map_or(Value::Foreign, |(ip, port)| Value::Endpoint(ip, port)),
        DataRef::Verdict(Verdict::Drop) => Value::Drop,
        DataRef::Verdict(Verdict::Goto(REJECT)) => Value::Reject,
        DataRef::Verdict(Verdict::Goto(chain)) => {
            let class = ChainId::parse(chain).map(Value::Goto);
            class
                .or_else(|| parse_record_chain(chain).map(Value::Record))
                .unwrap_or(Value::Foreign)
        }
        DataRef::Verdict(
            Verdict::Accept | Verdict::Return | Verdict::Continue | Verdict::Jump(_),
        ) => Value::Foreign,
    };
    Some(((set, key), value))
}
