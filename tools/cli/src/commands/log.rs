//! `log`.

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{Output, json_line, write_out};
use crate::pager;
use crate::protocol::Request;
use crate::protocol::reply::Node;

use super::tree;

pub(super) fn run(context: &Context) -> Result<Exit> {
    let mut nodes = Vec::new();
    let mut client = context.client()?;
    let _end: serde_json::Value = client.call_each(&Request::Log {}, None, |node: Node| {
        if context.output == Output::Json {
            return write_out(&json_line(&node)?);
        }
        nodes.push(node);
        Ok(())
    })?;
    if context.output == Output::Human {
        pager::show(&tree::draw(&nodes))?;
    }
    Ok(Exit::Done)
}
