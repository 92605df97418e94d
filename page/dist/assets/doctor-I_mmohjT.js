import{b as t,E as o}from"./ui-CT8jbBbe.js";function a(){return t(o,{title:"doctor"})}export{a as default};
