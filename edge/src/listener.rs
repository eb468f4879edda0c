//! The sockets that listen on the address of a port.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs},
};

use socket2::{Domain, Socket, Type};

/// Connections that may wait until the server accepts them; the kernel has a maximum of its own.
const BACKLOG: i32 = 4_096;

/// Listens on all addresses of `host:port`, and returns the sockets.
///
/// The port 0 means any free port, the same for all addresses. `0.0.0.0` includes IPv6, where the
/// machine has IPv6, so that one setting fits all networks.
///
/// # Errors
///
/// The host has no address, or an address is not available.
pub fn listen(address: &str) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::<TcpListener>::new();
    for mut address in address.to_socket_addrs()? {
        if let Some(first) = listeners.first() {
            address.set_port(first.local_addr()?.port());
        }
        listeners.push(bind_widely(address)?);
    }
    if listeners.is_empty() { Err(io::ErrorKind::AddrNotAvailable.into()) } else { Ok(listeners) }
}

fn bind_widely(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip().is_unspecified() {
        let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
        match bind(any) {
            Err(error) if address.is_ipv4() && error.kind() != io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    bind(address)
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // A node that starts again must not wait until the connections of its last run are forgotten.
    socket.set_reuse_address(true)?;
    if address.ip().is_unspecified() && address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_taken_port_is_an_error() {
        let first = listen("127.0.0.1:0").unwrap();
        let address = first[0].local_addr().unwrap();
        assert_eq!(listen(&address.to_string()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn any_address_accepts_connections_of_ipv4() {
        let listeners = listen("0.0.0.0:0").unwrap();
        let port = listeners[0].local_addr().unwrap().port();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    #[test]
    fn all_addresses_of_a_host_have_one_port() {
        let ports: Vec<_> = listen("localhost:0").unwrap().iter().map(|one| one.local_addr().unwrap().port()).collect();
        assert!(ports.iter().all(|port| *port == ports[0]));
    }
}
