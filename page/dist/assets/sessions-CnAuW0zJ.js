import{b as t,E as s}from"./ui-CT8jbBbe.js";function a(){return t(s,{title:"sessions"})}export{a as default};
