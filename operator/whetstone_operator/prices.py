"""The administrator's price table: what an hour of a device costs. Pure."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final

from kubernetes.utils.quantity import parse_quantity
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

_PLACES: Final = Decimal("0.0001")


class PricesError(ValueError):
    """The table cannot be read; the message says why."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class DevicePrice(_Strict):
    """What one device costs.

    Args:
        resource: Resource that pods ask for, such as nvidia.com/gpu.
        per_hour: Price of an hour of one.
        node_selector: Labels that the pod's nodeSelector must name too: which device of many.
        teraflops: Operations that one does in a second of training, in 10^12; None where nobody has measured it.
    """

    resource: Annotated[str, Field(min_length=1, max_length=253)]
    per_hour: Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]
    node_selector: dict[str, str] = {}
    teraflops: Annotated[Decimal, Field(gt=0, allow_inf_nan=False)] | None = None


class Prices(_Strict):
    """The table.

    Args:
        currency: What the prices are in.
        devices: The prices; the first that fits a pod counts.
    """

    currency: Annotated[str, Field(max_length=16)] = ""
    devices: tuple[DevicePrice, ...] = ()

    def of_pod(self, pod: Mapping[str, Any]) -> DevicePrice | None:
        """Return the price of what a pod asks for; None where the table does not name it."""
        chosen = (pod.get("spec") or {}).get("nodeSelector") or {}
        for price in self.devices:
            if price.node_selector.items() <= chosen.items() and asked_devices(pod, price.resource):
                return price
        return None


def amount_text(value: Decimal) -> str:
    """Return an amount, of money or of what it is paid for, as decimal text of at most four places."""
    return format(value.quantize(_PLACES).normalize(), "f")


def asked_devices(pod: Mapping[str, Any], resource: str) -> Decimal:
    """Return how much of a resource a pod's containers ask for; a request where there is one, else the limit."""
    found = Decimal(0)
    for container in (pod.get("spec") or {}).get("containers") or []:
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        if resource in asked:
            found += parse_quantity(str(asked[resource]))
    return found


def read_prices(text: str) -> Prices:
    """Read the table.

    Args:
        text: JSON; empty for no table.

    Raises:
        PricesError: It is no table.
    """
    try:
        return Prices.model_validate(json.loads(text)) if text else Prices()
    except ValidationError as error:
        first = error.errors()[0]
        raise PricesError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except ValueError as error:
        raise PricesError(f"no JSON ({error})") from error
