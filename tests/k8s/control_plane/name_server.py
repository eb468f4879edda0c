"""Answer DNS queries for the names of pods, as the cluster's DNS server does."""

import socket
import struct
import threading

_A, _IN, _NAME_ERROR = 1, 1, 3
_RESPONSE = 0x8400
TTL_SECONDS = 1


class NameServer:
    """A DNS server on one address; ``addresses`` has the IPv4 address of each name."""

    def __init__(self, host):
        self.addresses = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            query, sender = self._socket.recvfrom(512)
            self._socket.sendto(self._answer(query), sender)

    def _answer(self, query):
        (number,) = struct.unpack_from("!H", query)
        labels, place = [], 12
        while query[place]:
            labels.append(query[place + 1 : place + 1 + query[place]].decode())
            place += 1 + query[place]
        (kind,) = struct.unpack_from("!H", query, place + 1)
        question = query[12 : place + 5]
        address = self.addresses.get(".".join(labels).lower())
        found = address is not None and kind == _A
        status = 0 if address is not None else _NAME_ERROR
        head = struct.pack("!6H", number, _RESPONSE | status, 1, int(found), 0, 0)
        if not found:
            return head + question
        record = struct.pack("!3HIH", 0xC00C, _A, _IN, TTL_SECONDS, 4)
        return head + question + record + socket.inet_aton(address)
